-- Moves delayed deliveries whose time has come to ready, or to keyed, at most `most`, the longest
-- due first; returns their number.
-- since: deliveries due before it are not read (see tick). Concurrency: skips locked rows.
create or replace function headrace._tick_due(most int, since timestamptz default '-infinity') returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    t timestamptz := headrace._now();
    mine constant int[] := headrace._accessible_queues();
    queues int[];
    turns headrace.delayed[];
    moved int;
    q headrace.queues;
begin
    with due as materialized (
        select d.ctid from headrace.delayed d
        where d.due_at <= t and d.due_at >= since and (mine is null or d.queue = any (mine))
        order by d.due_at limit most
        for update skip locked
    ),
    gone as (
        delete from headrace.delayed d where d.ctid = any (array(select ctid from due)) returning d.*
    ),
    moved as (
        insert into headrace.ready (event, created_at, route, seq, queue, attempts, priority, failures, crashes,
                                    suspect, ready_at)
        select event, created_at, route, nextval('headrace.ids'), queue, attempts, priority, failures,
               crashes, suspect, t
        from (select * from gone where key is null order by due_at, event) g
    ),
    ordered as (
        insert into headrace.keyed (queue, key, event, created_at, route, attempts, priority, failures,
                                    crashes, suspect)
        select queue, key, event, created_at, route, attempts, priority, failures, crashes, suspect from gone
        where key is not null
    )
    select array_agg(distinct g.queue), count(*), array_agg(g::headrace.delayed) filter (where g.key is not null)
    into queues, moved, turns
    from gone g;
    for q in
        select o.* from headrace.queues o where o.id = any (array(select distinct d.queue from unnest(turns) d))
    loop
        perform headrace._release_keys(q, t, array(
            select headrace._taken_delivery(d.event, d.attempts, d.created_at, d.failures, d.crashes, d.suspect, d.key)
            from unnest(turns) d where d.queue = q.id));
    end loop;
    perform headrace._wake(queue) from unnest(queues) queue;
    return moved;
end $$;
