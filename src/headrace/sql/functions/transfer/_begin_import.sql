-- Begins an import: see import_state.
-- The function makes the queue with the settings of the file if it does not exist; then is_new is
-- true. An existing queue keeps its own settings, unless this database never held an event.
-- kept_ids: the events keep their numbers, because this database never held one and is the same
-- shard: see _take_ids. The function takes the numbers of the file at this point: publishers wait until
-- the import has ended. Else each event gets a new number, in the order of the old ones.
-- Concurrency: imports into a namespace take turns. While one goes on, no month is retired and no
-- queue is filled with the past.
-- Raises QU001, QU010, QU023 while a queue of the namespace is being filled with the past, QU030
-- outside READ COMMITTED.
create or replace function headrace._begin_import(
    import uuid, namespace text, queue text, header jsonb, actor text,
    out is_new boolean, out kept_ids boolean
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    n headrace.namespaces;
    q headrace.queues;
    settings constant jsonb := header -> 'settings';
    others constant jsonb := settings - '{types,tags,all_tags,takes}'::text[];
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception using errcode = 'QU030',
            message = 'an import needs READ COMMITTED: it must see what others have just imported';
    elsif _begin_import.import is null then
        raise exception using errcode = 'QU001', message = 'an import needs a number of its own';
    end if;
    perform headrace._raise_problem(headrace._export_header_problem(header), 0);
    select * into n from headrace.namespaces s where s.name = _begin_import.namespace
        and (not s.bound or headrace._has_access(s.name));
    if not found then
        perform headrace._raise_no_such_queue(_begin_import.namespace, 'main');
    end if;
    -- The upkeep that retires a past month must not miss a delivery that becomes live in it: see
    -- _carry_over.
    perform headrace._lock('fill');
    perform headrace._lock('import ' || n.id);
    -- All namespaces share the numbers: neither a role that is bound to some namespaces nor a
    -- forged file may use them up.
    kept_ids := headrace._has_access(null) and (header ->> 'last_id')::bigint < 1::bigint << 50
                and headrace._take_ids(header);
    is_new := not exists (select from headrace.queues o where o.space = n.name and o.name = _begin_import.queue);
    if is_new then
        perform headrace.create_queue(
            n.name, _begin_import.queue, headrace._string_set(settings -> 'types'),
            headrace._string_set(settings -> 'tags'),
            coalesce((settings ->> 'all_tags')::boolean, false), others, actor => _begin_import.actor);
    end if;
    q := headrace._queue_named(n.name, _begin_import.queue);
    if is_new and settings -> 'takes' = 'false' then
        perform headrace._store_queue_settings(q, '{"takes": false}');
    elsif kept_ids and not is_new then
        perform headrace._store_queue_settings(q, settings);
    end if;
    if exists (select from headrace.chores c join headrace.queues f on f.id = c.queue where f.namespace = n.id
                   and c.task = 'fill') then
        raise exception using errcode = 'QU023',
            message = format(
                'a queue of the namespace %L is being filled with the past, and would get what is imported: import '
                'when that is done', n.name);
    end if;
    insert into headrace.open_imports (id, queue, is_new, origin, exported_at, kept_ids, last_id, actor)
    values (_begin_import.import, q.id, _begin_import.is_new, (header ->> 'origin')::uuid,
            (header ->> 'exported_at')::timestamptz,
            _begin_import.kept_ids, (header ->> 'last_id')::bigint, _begin_import.actor);
end $$;
