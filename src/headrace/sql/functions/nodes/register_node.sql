-- Registers a node, or this start of it: returns its id as it is stored (see _node_name). Under a
-- known id the newest instance takes over: registered_at keeps the time of the id's first
-- registration, started_at becomes this instance's.
-- instance: anything unique to this start of the process. handles: the types it handles, with
-- asterisks. worker: host:pid. at_once: how many handlers it runs at once; what it claims beyond
-- that has not begun: see stats; null leaves what is known. recover takes over the claims of an
-- earlier start that died.
-- Concurrency: two registrations of one id take turns, and the last one owns it.
-- Raises QU001 for an id that normalises to nothing, or a value that is too long, QU010.
create or replace function headrace.register_node(
    namespace text,
    node_id text,
    instance uuid,
    display_name text default null,
    description text default null,
    metadata jsonb default '{}',
    handles text[] default '{}',
    worker text default '',
    at_once int default null
) returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    t timestamptz := headrace._now();
    home int := (select n.id from headrace.namespaces n where n.name = namespace);
    kept text := headrace._node_name(node_id);
begin
    perform headrace._check_access(register_node.namespace);
    if home is null then
        perform headrace._raise_no_such_queue(namespace, 'main');
    elsif kept is null or instance is null then
        raise exception using errcode = 'QU001',
            message = 'a node needs an id with a letter or a digit in it (a-z, A-Z, 0-9), and an instance';
    elsif jsonb_typeof(metadata) <> 'object' or pg_column_size(metadata) > 64 * 1024 then
        raise exception using errcode = 'QU001', message = 'the metadata of a node are a JSON object of at most 64 KiB';
    elsif length(display_name) > 200 or length(worker) > 200 or length(description) > 10000 then
        raise exception using errcode = 'QU001',
            message = 'the names of a node and its worker have at most 200 characters, its description 10000';
    elsif cardinality(handles) > 1000 or exists (select from unnest(handles) h where h is null
                                                     or length(h) not between 1 and 200) then
        raise exception using errcode = 'QU001',
            message = 'a node handles at most 1000 types, each of 1 to 200 characters';
    end if;
    perform headrace._raise_problem(headrace._document_problem(metadata, 'the metadata of a node'), 0);
    insert into headrace.nodes as o (namespace, space, node_id, instance, display_name, description, metadata,
                                     handles, worker, registered_at, started_at, last_heartbeat)
    values (home, namespace, kept, instance, display_name, description, coalesce(metadata, '{}'),
            coalesce(handles, '{}'), coalesce(worker, ''), t, t, t)
    on conflict on constraint nodes_pkey do update set
        instance = excluded.instance, display_name = excluded.display_name, description = excluded.description,
        metadata = excluded.metadata, handles = excluded.handles, worker = excluded.worker, stopped_at = null,
        started_at = case when o.instance = excluded.instance then o.started_at else excluded.started_at end,
        last_heartbeat = excluded.last_heartbeat;
    perform headrace._store_instance(home, kept, instance);
    update headrace.instances i set at_once = register_node.at_once
    where i.instance = register_node.instance and i.at_once is distinct from register_node.at_once
      and register_node.at_once is not null;
    return kept;
end $$;
