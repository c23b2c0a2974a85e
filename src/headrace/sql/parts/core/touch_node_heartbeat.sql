-- A node's heartbeat. It counts in every namespace that has a node of this id;
-- headrace.touch_node_heartbeat is for one namespace, and returns whether the node is registered.
create or replace function core.touch_node_heartbeat(p_node_id text) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    update headrace.nodes o set last_heartbeat = headrace._now(), stopped_at = null
    where o.node_id = headrace._node_name(p_node_id)
      and (select not n.bound or headrace._has_access(n.name) from headrace.namespaces n where n.id = o.namespace)
$$;
