-- The hourly upkeep: partitions ahead, retention, rows that are no longer needed, the safety net of
-- ordering keys. Returns
--     done     all of it is done
--     more     a part of it is done: call again
--     failed   see below
--     null     it is not due
-- A call does one table, and then the transaction ends: a transaction that held one table's lock
-- while waiting for another's would deadlock with a reader of both. `at_once` does all of it in
-- this transaction. Each part gives up rather than make other sessions wait for its lock, and a
-- part that fails holds up neither the other parts nor the tick. The next call retries a lock that
-- it could not get; any other failure raises a warning, and is retried a minute later.
-- Concurrency: one call at a time; a second call leaves the work to the first.
create or replace function headrace._upkeep(at_once boolean default false) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '50ms'
as $$
declare
    t timestamptz := headrace._now();
    part text;
    parent text;
    did int := 0;
    retiring record;
    failed interval;  -- when to try again
    later interval;
    problem text;     -- what failed: see ticking
begin
    if not at_once and exists (select from headrace.upkeep u where u.task = 'hourly' and u.next_at > t)
       or not headrace._try_lock('upkeep') then
        return null;
    end if;
    -- First, because it may read a lot, and no lock is held yet.
    select y.more::int, y.failed, y.problem into did, failed, problem from headrace._clean_up(at_once) y;
    begin
        perform headrace._plan_by_month();
    exception when others then
        failed := greatest(failed, headrace._retry_upkeep_in('planning by month', sqlstate, sqlerrm));
    end;
    for part, parent in
        select p.part, o.parent
        from unnest('{make,retire}'::text[]) with ordinality as p(part, n),
            unnest('{events,outcomes,errors}'::text[]) as o(parent)
        order by p.n
    loop
        begin
            if part = 'make' then
                did := did + headrace._make_partitions(parent);
            else
                select * into retiring from headrace._retire_partitions(parent);
                did := did + retiring.retired;
                if retiring.problem is not null then
                    later := headrace._retry_upkeep_in('retiring of ' || parent, retiring.state, retiring.problem);
                    failed := greatest(failed, later);
                    problem := coalesce(problem, case when later > interval '0' then 'retiring of ' || parent || ': '
                                                      || retiring.problem end);
                end if;
            end if;
        exception when others then
            later := headrace._retry_upkeep_in(part || ' months of ' || parent, sqlstate, sqlerrm);
            failed := greatest(failed, later);
            problem := coalesce(problem, case when later > interval '0' then part || ' months of ' || parent || ': '
                                              || sqlerrm end);
        end;
        exit when did > 0 and not at_once;
    end loop;
    delete from headrace.upkeep u where u.task = 'hourly';
    insert into headrace.upkeep (task, next_at, problem)
    values ('hourly', t + coalesce(failed, case when did > 0 and not at_once then interval '0'
                                                else interval '1 hour' end), left(problem, 1000));
    return case when failed is not null then 'failed' when did > 0 and not at_once then 'more' else 'done' end;
end $$;
