-- What is done once an hour: partitions ahead, retention, old statistics. Returns whether all of it was done now.
-- Each part gives up rather than make others wait for its lock, and what fails keeps neither the other parts nor the
-- tick from their work: it is warned of, and tried again a minute later.
-- Concurrency: one at a time; whoever comes second leaves it to the first.
create or replace function headrace.upkeep(at_once boolean default false) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '50ms'
as $$
declare
    t timestamptz := headrace.now();
    done boolean := true;
begin
    if not at_once and exists (select from headrace.upkeep u where u.task = 'hourly' and u.next_at > t)
       or not pg_try_advisory_xact_lock(1212433734, 0) then
        return false;
    end if;
    begin
        perform headrace.make_partitions();
    exception when others then
        done := headrace.put_off('making partitions', sqlstate, sqlerrm);
    end;
    begin
        done := headrace.retire_partitions() and done;
    exception when others then
        done := headrace.put_off('retention', sqlstate, sqlerrm);
    end;
    begin
        delete from headrace.stats s where s.minute < t - interval '31 days';
    exception when others then
        done := headrace.put_off('old statistics', sqlstate, sqlerrm);
    end;
    delete from headrace.upkeep u where u.task = 'hourly';
    insert into headrace.upkeep (task, next_at) values ('hourly', t + case when done then interval '1 hour' else interval '1 minute' end);
    return done;
end $$;
