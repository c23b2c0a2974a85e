-- Unregisters a node: it is listed as stopped, and removed after a month. Returns whether this
-- instance owned the id.
-- Raises QU010.
create or replace function headrace.unregister_node(namespace text, node_id text, instance uuid) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    t timestamptz := headrace._now();
    home int := (select n.id from headrace.namespaces n where n.name = namespace);
    is_its_own boolean;
begin
    perform headrace._check_access(unregister_node.namespace);
    if home is null then
        perform headrace._raise_no_such_queue(namespace, 'main');
    end if;
    update headrace.nodes o set stopped_at = t
    where o.namespace = home and o.node_id = headrace._node_name(unregister_node.node_id)
      and o.instance = unregister_node.instance and o.stopped_at is null;
    is_its_own := found;
    delete from headrace.instances i where i.instance = unregister_node.instance and i.namespace = home;
    return is_its_own;
end $$;
