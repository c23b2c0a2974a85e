-- Begins an import: see import_state.
-- The queue is made with the settings of the file if it is not there; is_new says so. One that is there keeps its own, unless this database
-- never held an event.
-- kept_ids: the events keep their numbers, because this database never held one and draws each number in turn. The numbers of the file are
-- taken by then: whoever publishes meanwhile waits until this has ended. Else each event gets a new number, in the order of the old ones.
-- Concurrency: imports into a namespace take turns. While one goes on, no month is retired and no queue is filled with the past.
-- Raises QU001, QU010, QU023 while a queue of the namespace is being filled with the past, QU030 outside READ COMMITTED.
create or replace function headrace.begin_import(
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
        raise exception using errcode = 'QU030', message = 'an import needs READ COMMITTED: it must see what others have just imported';
    elsif begin_import.import is null then
        raise exception using errcode = 'QU001', message = 'an import needs a number of its own';
    end if;
    perform headrace.refuse(headrace.header_problem(header), 0);
    select * into n from headrace.namespaces s where s.name = begin_import.namespace and (not s.bound or headrace.admits(s.name));
    if not found then
        perform headrace.no_such_queue(begin_import.namespace, 'main');
    end if;
    -- What comes to life in a month that is past must not be overlooked by who retires it: see carry_over.
    perform headrace.lock('fill');
    perform headrace.lock('import ' || n.id);
    -- The numbers are everybody's: neither a role that works in some namespaces only nor a file that was made up uses them up.
    kept_ids := headrace.admits(null) and (header ->> 'last_id')::bigint < 1::bigint << 50
                and headrace.take_numbers((header ->> 'last_id')::bigint);
    is_new := not exists (select from headrace.queues o where o.space = n.name and o.name = begin_import.queue);
    if is_new then
        perform headrace.create_queue(
            n.name, begin_import.queue, headrace.strings(settings -> 'types'), headrace.strings(settings -> 'tags'),
            coalesce((settings ->> 'all_tags')::boolean, false), others, actor => begin_import.actor);
    end if;
    q := headrace.its_queue(n.name, begin_import.queue);
    if is_new and settings -> 'takes' = 'false' then
        perform headrace.set_queue(q, '{"takes": false}');
    elsif kept_ids and not is_new then
        perform headrace.set_queue(q, settings);
    end if;
    if exists (select from headrace.chores c join headrace.queues f on f.id = c.queue where f.namespace = n.id and c.task = 'fill') then
        raise exception using errcode = 'QU023',
            message = format('a queue of the namespace %L is being filled with the past, and would get what is imported: import when that is done', n.name);
    end if;
    insert into headrace.open_imports (id, queue, is_new, origin, exported_at, kept_ids, last_id, actor)
    values (begin_import.import, q.id, begin_import.is_new, (header ->> 'origin')::uuid, (header ->> 'exported_at')::timestamptz,
            begin_import.kept_ids, (header ->> 'last_id')::bigint, begin_import.actor);
end $$;
