-- The starts of nodes that are alive: the node has not unregistered, its last heartbeat (a node
-- sends one every 30 seconds) is younger than 90 seconds, and _dead_instances does not list it.
-- Every report that calls a node alive or lost asks this function, so that nodes, count_nodes,
-- attention, unhandled_types and the doctor agree. Only for reports: the lease alone decides
-- whether a claim is valid.
create or replace function headrace._alive_nodes(t timestamptz) returns uuid[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(array_agg(o.instance), '{}') from headrace.nodes o
    where o.stopped_at is null and o.last_heartbeat > t - interval '90 seconds'
      and o.instance not in (select headrace._dead_instances())
$$;
