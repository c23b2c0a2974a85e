-- What tick does for queues: counts those that have a limit, 500 at most, so that their publishers seldom have to; pauses those that
-- are drained; fills and clears: see chores. Returns whether there is more to do at once. since: as in tick_due.
-- Concurrency: one at a time; whoever comes second leaves it to the first. Never waits.
create or replace function headrace.tick_queues(t timestamptz, since timestamptz) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
    q headrace.queues;
begin
    if not exists (select from headrace.namespaces n where n.guarded) and not exists (select from headrace.chores)
       or not headrace.try_lock('fill') then
        return false;
    end if;
    for q in
        select o.* from headrace.namespaces n join headrace.queues o on o.namespace = n.id
        where n.guarded and o.takes and coalesce(o.max_queue_depth, o.high_watermark) is not null
        order by random() limit 500
    loop
        perform headrace.count_depth(q, t)
        where not exists (select from headrace.depths d where d.queue = q.id and d.at between t - interval '0.9 seconds' and t);
        delete from headrace.depths d
        where d.queue = q.id
          and (d.at between since - interval '1 minute' and t - interval '10 seconds' or d.at > t + interval '10 seconds');
    end loop;
    perform headrace.pause_drained(o) from headrace.namespaces n join headrace.queues o on o.namespace = n.id
    where n.guarded and o.state = 'draining';
    return headrace.tick_chores(t);
end $$;
