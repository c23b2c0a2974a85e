-- A node's heartbeat, every 30 seconds. Returns
--     alive       the node is registered, and this instance owns the id
--     replaced    another instance owns the id now
--     missing     the node is not registered (any more)
-- Raises QU010.
create or replace function headrace.touch_node_heartbeat(namespace text, node_id text, instance uuid) returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    t timestamptz := headrace._now();
    home int := (select n.id from headrace.namespaces n where n.name = namespace);
    kept text := headrace._node_name(node_id);
    is_alive boolean;
begin
    perform headrace._check_access(touch_node_heartbeat.namespace);
    if home is null then
        perform headrace._raise_no_such_queue(namespace, 'main');
    end if;
    update headrace.nodes o set last_heartbeat = t, stopped_at = null
    where o.namespace = home and o.node_id = kept and o.instance = touch_node_heartbeat.instance;
    is_alive := found;
    perform headrace._store_instance(home, kept, instance);
    return case when is_alive then 'alive'
                when exists (select from headrace.nodes o where o.namespace = home and o.node_id = kept) then 'replaced'
                else 'missing' end;
end $$;
