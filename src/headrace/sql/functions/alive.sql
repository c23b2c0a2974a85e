-- The starts of nodes that are alive: a node has not said goodbye, its last heartbeat (a node sends one every 30 seconds) is younger
-- than 90 seconds, and it is not seen to be dead (dead_instances). Every report that calls a node alive or lost asks this function, so
-- that nodes, count_nodes, attention, unhandled_types and the doctor agree. Only a report: whether a claim is good, its lease says.
create or replace function headrace.alive(t timestamptz) returns uuid[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(array_agg(o.instance), '{}') from headrace.nodes o
    where o.stopped_at is null and o.last_heartbeat > t - interval '90 seconds'
      and o.instance not in (select headrace.dead_instances())
$$;
