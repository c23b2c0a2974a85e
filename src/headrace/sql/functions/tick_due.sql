-- Moves delayed deliveries whose time has come to ready, at most `most`, the longest due first; returns how many.
-- since: nothing due before it is looked at (see tick). Concurrency: skips what is locked.
create or replace function headrace.tick_due(most int, since timestamptz default '-infinity') returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    t timestamptz := headrace.now();
    queues int[];
    moved int;
begin
    with due as materialized (
        select d.ctid from headrace.delayed d
        where d.due_at <= t and d.due_at >= since
        order by d.due_at limit most
        for update skip locked
    ),
    gone as (
        delete from headrace.delayed d where d.ctid = any (array(select ctid from due)) returning d.*
    ),
    moved as (
        insert into headrace.ready (event, created_at, route, seq, queue, attempts, priority, failures, crashes, suspect)
        select event, created_at, route, nextval('headrace.ids'), queue, attempts, priority, failures, crashes, suspect
        from (select * from gone order by due_at, event) g
        returning queue
    )
    select array_agg(distinct queue), count(*) into queues, moved from moved;
    perform headrace.wake(queue) from unnest(queues) queue;
    return moved;
end $$;
