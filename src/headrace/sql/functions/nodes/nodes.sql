-- The nodes of a namespace, by id. alive: see _alive_nodes. registered_at: when the id was first
-- registered; started_at: when its current process registered. Raises QU010.
create or replace function headrace.nodes(namespace text)
returns table (node_id text, alive boolean, display_name text, description text, metadata jsonb, handles text[],
               worker text,
               instance uuid, registered_at timestamptz, started_at timestamptz, last_heartbeat timestamptz,
               stopped_at timestamptz)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    living constant uuid[] := headrace._alive_nodes(headrace._now());
    home int := (select n.id from headrace.namespaces n where n.name = nodes.namespace);
begin
    perform headrace._check_access(nodes.namespace);
    if home is null then
        perform headrace._raise_no_such_queue(nodes.namespace, 'main');
    end if;
    return query
    select o.node_id, o.instance = any (living), o.display_name, o.description,
           headrace._readable_json(o.metadata), o.handles, o.worker, o.instance, o.registered_at, o.started_at,
           o.last_heartbeat, o.stopped_at
    from headrace.nodes o
    where o.namespace = home
    order by o.node_id;
end $$;
