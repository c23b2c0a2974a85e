-- What is done once an hour: partitions ahead, retention, old statistics. Returns whether it was done now.
-- Each part gives up rather than make others wait for its lock, and is tried again by the next call.
-- Concurrency: one at a time; whoever comes second leaves it to the first.
create function headrace.upkeep(at_once boolean default false) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '50ms'
as $$
declare
    t timestamptz := headrace.now();
    done boolean := true;
begin
    if not at_once and exists (select from headrace.upkeep u where u.task = 'hourly' and u.done_at > t - interval '1 hour') then
        return false;
    end if;
    if not pg_try_advisory_xact_lock(1212433734, 0) then
        return false;
    end if;
    begin
        perform headrace.make_partitions();
    exception when lock_not_available then
        done := false;
    end;
    begin
        perform headrace.retire_partitions();
    exception when lock_not_available then
        done := false;
    end;
    delete from headrace.stats s where s.minute < t - interval '31 days';
    if done then
        insert into headrace.upkeep (task, done_at) values ('hourly', t)
        on conflict (task) do update set done_at = excluded.done_at;
    end if;
    return done;
end $$;
