-- The part of tick for queues: counts queues with a limit, 500 at most, so that their publishers
-- seldom have to; pauses drained queues; fills and clears: see chores. Returns whether there is
-- more to do at once. since: as in _tick_due.
-- Concurrency: one call at a time; a second call leaves the work to the first. Never waits.
create or replace function headrace._tick_queues(t timestamptz, since timestamptz) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
    q headrace.queues;
begin
    if not exists (select from headrace.namespaces n where n.guarded) and not exists (select from headrace.chores)
       or not headrace._try_lock('fill') then
        return false;
    end if;
    for q in
        select o.* from headrace.namespaces n join headrace.queues o on o.namespace = n.id
        where n.guarded and o.takes and coalesce(o.max_queue_depth, o.high_watermark) is not null
        order by random() limit 500
    loop
        perform headrace._store_depth(q, t)
        where not exists (select from headrace.depths d where d.queue = q.id
                              and d.at between t - interval '0.9 seconds' and t);
        delete from headrace.depths d
        where d.queue = q.id
          and (d.at between since - interval '1 minute' and t - interval '10 seconds'
               or d.at > t + interval '10 seconds');
    end loop;
    perform headrace._pause_drained(o) from headrace.namespaces n join headrace.queues o on o.namespace = n.id
    where n.guarded and o.state = 'draining';
    return headrace._tick_chores(t);
end $$;
