-- What is done once an hour: partitions ahead, retention, what is no longer needed, the net under ordering keys. Returns
--     done: all of it        more: a part of it, call again        failed: see below        null: it is not due
-- One table at a time, and then the transaction ends: whoever held one table's lock while asking for another's would
-- wait in a circle with a reader of both. `at_once` does all of it in this transaction.
-- Each part gives up rather than make others wait for its lock, and what fails keeps neither the other parts nor the
-- tick from their work. A lock that was not to be had is tried for again by the next call; of anything else
-- there is a warning, and another try a minute later.
-- Concurrency: one at a time; whoever comes second leaves it to the first.
create or replace function headrace.upkeep(at_once boolean default false) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '50ms'
as $$
declare
    t timestamptz := headrace.now();
    part text;
    parent text;
    did int := 0;
    retiring record;
    failed interval;  -- when to try again
    later interval;
    problem text;     -- what failed: see ticking
begin
    if not at_once and exists (select from headrace.upkeep u where u.task = 'hourly' and u.next_at > t)
       or not headrace.try_lock('upkeep') then
        return null;
    end if;
    -- First, because it may read a great deal, and no lock is held yet.
    select y.more::int, y.failed, y.problem into did, failed, problem from headrace.tidy(at_once) y;
    begin
        perform headrace.plan_by_month();
    exception when others then
        failed := greatest(failed, headrace.put_off('planning by month', sqlstate, sqlerrm));
    end;
    for part, parent in
        select p.part, o.parent
        from unnest('{make,retire}'::text[]) with ordinality as p(part, n), unnest('{events,outcomes,errors}'::text[]) as o(parent)
        order by p.n
    loop
        begin
            if part = 'make' then
                did := did + headrace.make_partitions(parent);
            else
                select * into retiring from headrace.retire_partitions(parent);
                did := did + retiring.retired;
                if retiring.problem is not null then
                    later := headrace.put_off('retiring of ' || parent, retiring.state, retiring.problem);
                    failed := greatest(failed, later);
                    problem := coalesce(problem, case when later > interval '0' then 'retiring of ' || parent || ': ' || retiring.problem end);
                end if;
            end if;
        exception when others then
            later := headrace.put_off(part || ' months of ' || parent, sqlstate, sqlerrm);
            failed := greatest(failed, later);
            problem := coalesce(problem, case when later > interval '0' then part || ' months of ' || parent || ': ' || sqlerrm end);
        end;
        exit when did > 0 and not at_once;
    end loop;
    delete from headrace.upkeep u where u.task = 'hourly';
    insert into headrace.upkeep (task, next_at, problem)
    values ('hourly', t + coalesce(failed, case when did > 0 and not at_once then interval '0' else interval '1 hour' end), left(problem, 1000));
    return case when failed is not null then 'failed' when did > 0 and not at_once then 'more' else 'done' end;
end $$;
