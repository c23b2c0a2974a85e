-- A node's heartbeat. An id is meant in every namespace that has a node of it; headrace.touch_node_heartbeat is about one, and
-- tells whether the node is there.
create or replace function core.touch_node_heartbeat(p_node_id text) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    update headrace.nodes o set last_heartbeat = headrace.now(), stopped_at = null
    where o.node_id = headrace.node_name(p_node_id)
      and (select not n.bound or headrace.admits(n.name) from headrace.namespaces n where n.id = o.namespace)
$$;
