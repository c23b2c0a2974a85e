-- Removes the saved progress of deliveries that have ended, and whose dead letters are gone. Reads
-- `most` rows at a time, each of them once an hour, and returns whether there may be more to read.
-- Concurrency: skips locked rows. An ended delivery stays ended; a worker that saves progress for
-- an unfinished delivery waits for the commit.
create or replace function headrace._forget_progress(most int) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    t timestamptz := headrace._now();
    due record;
    needed bigint[];
    looked int := 0;
begin
    for due in
        with looked_at as materialized (
            select p.queue, p.event from headrace.progress p
            where p.look_at <= t
            order by p.look_at limit most
            for update skip locked
        )
        select q, l.events
        from (select queue, array_agg(event) as events from looked_at group by queue) l
        join headrace.queues q on q.id = l.queue
    loop
        looked := looked + cardinality(due.events);
        needed := array(
            select s.id from headrace._event_states(due.q, due.events) s where s.status in ('PENDING', 'PROCESSING')
            union all
            select x.event from headrace.dead_letters x where x.queue = (due.q).id and x.event = any (due.events));
        delete from headrace.progress p where p.queue = (due.q).id and p.event = any (due.events)
            and p.event <> all (needed);
        update headrace.progress p set look_at = t + interval '1 hour' where p.queue = (due.q).id
            and p.event = any (needed);
    end loop;
    return looked >= most;
end $$;
