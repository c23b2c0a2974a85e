-- The findings that need an operator's attention now, in a namespace or, without one, everywhere;
-- the worst come first, a hundred at most.
--     level   critical: something does not work; warning: it soon may not; notice: worth knowing
--     queue   null: the finding is about no queue in particular; namespace null: about the whole
--             installation
--     about   its numbers and names, by code; since: when it began, where that is known
-- The codes, with the contents of about:
--     upkeep_stopped     no tick has run for a minute
--     upkeep_behind      leases that ran out (expired) or delays that are over (due) for a minute
--                        and more, or the hourly upkeep is overdue by an hour and more
--                        (overdue_seconds), though ticks run
--     upkeep_failing     a part of the hourly upkeep fails (problem)
--     default_partition  rows lie in the DEFAULT partition under the monthly partitions (tables)
--     lock_in_the_way    a session holds a lock that others need (purpose, pid, role, application):
--                        see locks_in_the_way
--     waiting_long       deliveries have waited in a queue for five minutes or more (waiting,
--                        oldest_seconds)
--     limit_reached      deliveries of a group have waited for its limit for five minutes or more
--                        (scope, name, waiting, at_once, rate, per, oldest_seconds)
--     unhandled          a type has waited for a minute or more, no live node handles it, and no
--                        other worker is active here (type, oldest_seconds)
--     queue_full, above_watermark   (depth, limit)
--     paused, draining   and not empty (waiting, actor)
--     failing            a fifth or more of ten or more attempts in five minutes failed (attempts,
--                        failures)
--     dead_letters       new in the last hour (letters, counted to 1,000; the commonest kind:
--                        fingerprint, error, alike)
--     released_often     an event was released five times or more in a row, without progress: its
--                        handler never ends it (event, type, times)
--     orphaned           in progress for five minutes and more, by a worker that is not a live node
--                        (deliveries, workers)
--     node_lost          a node whose heartbeats stopped holds claims (node_id, worker_id,
--                        deliveries)
--     schedule_late      it should have fired a minute ago (name, due_at); schedule_unplanned: no
--                        client computes its next instants (name)
-- Cost: some look-ups for every queue, and for every pair of priority and route with waiting
-- deliveries; it does not grow with waiting or ended deliveries.
-- Raises QU010.
create or replace function headrace.attention(namespace text default null) returns setof headrace.finding
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    t constant timestamptz := headrace._now();
    living constant uuid[] := headrace._alive_nodes(t);
    home constant int := (select n.id from headrace.namespaces n where n.name = attention.namespace);
begin
    perform headrace._check_access(attention.namespace);
    if attention.namespace is not null and home is null then
        perform headrace._raise_no_such_queue(attention.namespace, 'main');
    end if;
    return query
    select f.* from (
        select * from headrace._attention_to_upkeep(t)
        union all
        select a.* from headrace.queues q cross join lateral headrace._attention_to_waiting(q, t, living) a
        where q.id in (select headrace._waiting_queues()) and q.space is not null
          and (home is null or q.namespace = home)
        union all
        select * from headrace._attention_to_queues(home, t)
        union all
        select * from headrace._attention_to_workers(home, t, living)
        union all
        select * from headrace._attention_to_released(home, t)
    ) f
    order by array_position('{critical,warning,notice}'::text[], f.level), f.since, f.namespace, f.queue,
        f.code, f.about
    limit 100;
end $$;
