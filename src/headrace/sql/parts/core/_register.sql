-- The trigger for an insert into core.nodes: registers the node, or, under an id that the namespace
-- has, updates the node's description and heartbeat. A process of Headrace under that id keeps it.
-- The insert itself stores nothing and counts no row.
create or replace function core._register() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    known headrace.nodes;
begin
    if new.registered_at is not null or new.last_heartbeat is not null then
        raise exception using errcode = 'QU001',
            message = 'registered_at and last_heartbeat of core.nodes are the database''s: leave them out';
    end if;
    select o.* into known from headrace.nodes o
    where o.space = new.space and o.node_id = headrace._node_name(new.node_id)
      and headrace._has_access(o.space) for update;
    perform headrace.register_node(
        new.space, new.node_id, coalesce(known.instance, gen_random_uuid()), new.display_name, new.description,
        new.metadata, known.handles, known.worker);
    return null;
end $$;
