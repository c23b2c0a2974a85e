-- Makes a queue: from now on it gets every event of its namespace that it takes, once, beside all
-- the other queues. Returns whether it is new: an existing queue that takes the same stays as it
-- is.
--
-- types: any may hold asterisks ("order.*"); tags: any of them, or all of them; null: everything.
-- settings: see change_queue.
-- since, after: the queue begins in the past, with the retained events published from this time on,
-- or after this event (0: with the first). Each of these events is delivered once, at once (also if
-- it was published with a delay), in the order of their ids. tick delivers them, step by step, and
-- begins when every transaction that is open now is over: one of them might be about to publish
-- without knowing of the queue. Until it is done, the order of a key holds among the old events and
-- among the new ones. A queue with a limit is filled up to its limit, and further as it empties.
-- Events that retention has dropped, or drops before tick reads them, are not delivered.
--
-- actor: the name in the log (see _log_action); default: the caller's role.
-- Concurrency: changes of a namespace's queues wait for each other; publishers never wait for them.
-- An event goes to the queue if its publisher began after this has committed; with since or after,
-- also if not.
-- Raises QU001, QU010, and QU052 if a queue of this name takes something else.
create or replace function headrace.create_queue(
    namespace text,
    queue text,
    types text[] default null,
    tags text[] default null,
    all_tags boolean default false,
    settings jsonb default '{}',
    since timestamptz default null,
    after bigint default null,
    actor text default null
) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    n headrace.namespaces;
    q headrace.queues;
    filter jsonb := jsonb_build_object('types', create_queue.types, 'tags', create_queue.tags,
                                       'all_tags', coalesce(create_queue.all_tags, false));
begin
    perform headrace._raise_problem(headrace._name_problem('queue', create_queue.queue), 0);
    perform headrace._raise_problem(headrace._queue_problem(filter), 0);
    if coalesce(settings, '{}') ?| '{types,tags,all_tags,takes}' then
        raise exception using errcode = 'QU001',
            message = 'what a new queue takes is said by the arguments types, tags and all_tags';
    elsif since is not null and after is not null then
        raise exception using errcode = 'QU001', message = 'a queue begins at a time or after an event, not both';
    elsif after < 0 then
        raise exception using errcode = 'QU001', message = 'a queue begins after an event, or after 0: with the first';
    end if;
    n := headrace._lock_namespace(create_queue.namespace);
    select * into q from headrace.queues o where o.space = create_queue.namespace and o.name = create_queue.queue;
    if found then
        if (q.types, q.tags, q.all_tags, q.takes) is distinct from
           (headrace._string_set(filter -> 'types'), headrace._string_set(filter -> 'tags'),
            (filter -> 'all_tags')::boolean, true) then
            raise exception using errcode = 'QU052',
                message = format('there is a queue %L in the namespace %L, and it takes something else',
                                 q.name, q.space),
                hint = 'headrace.change_queue changes what it takes';
        end if;
        return false;
    end if;
    -- The queue is off for a moment, so that _store_queue_settings sees a change of what it takes.
    lock table headrace.bound_roles in row exclusive mode;  -- see create_namespace
    insert into headrace.queues (namespace, name, space, version, takes, created_at, bound)
    values (n.id, create_queue.queue, n.name, n.version + 1, false, headrace._now(),
            exists (select from headrace.bound_roles))
    returning * into q;
    perform headrace._store_queue_settings(q, filter || coalesce(settings, '{}') || '{"takes": true}');
    if since is not null or after is not null then
        insert into headrace.chores (queue, task, made_by, since, done)
        values (q.id, 'fill', pg_current_xact_id(), coalesce(since, '-infinity'), coalesce(after, 0));
    end if;
    perform headrace._log_action(n.id, create_queue.actor, 'create_queue', q.name,
                                filter || coalesce(settings, '{}')
                                    || jsonb_build_object('since', since, 'after', after));
    return true;
end $$;
