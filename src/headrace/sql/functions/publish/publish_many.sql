-- Stores events of one type that have nothing but their payloads, an array, and queues them: as
-- publish does, in less time.
-- Returns the ids in the order of the payloads. All or nothing. pressure: as in publish.
-- Concurrency: never waits. The events exist when, and only when, the caller's transaction commits.
-- Raises QU001, QU002, QU003 (with the event's place in the batch as detail), QU010, QU050, QU051.
create or replace function headrace.publish_many(
    namespace text,
    type text,
    payloads jsonb,
    enforce boolean default true,
    out ids bigint[],
    out created_at timestamptz,
    out pressure boolean
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off        -- bindings are few when this is planned, and many later
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_variable
declare
    space int;
    current int;
    guarded boolean;
    floor bigint;
    xid xid8;
    its_route bigint;
    queues int[];
begin
    select s.id, s.version, s.guarded, s.floor into space, current, guarded, floor from headrace.namespaces s
    where s.name = namespace and (not s.bound or headrace._has_access(namespace));    -- else _publish_batch refuses it
    -- An id drawn before the transaction has an xid could commit below a bound that was declared
    -- final.
    select headrace._now(), pg_current_xact_id(), b.route, b.queues into created_at, xid, its_route, queues
    from headrace.bindings b
    where b.route = headrace._route(type, null) and b.namespace = space and b.version = current and b.type = type
      and b.created_at > headrace._now() - interval '30 days'  -- see _forget_routes
      and jsonb_typeof(payloads) = 'array' and payloads <> '[]';
    if not found then   -- a type that is new, or invalid; or nothing to publish
        xid := pg_current_xact_id();
        select p.ids, p.created_at, p.pressure into ids, created_at, pressure
        from headrace._publish_batch(namespace, jsonb_build_object('type', type, 'payloads', payloads), enforce,
                                     headrace._now()) p;
        return;
    end if;
    pressure := guarded and headrace._check_capacity(queues, enforce or not headrace._is_administrator(), created_at);
    ids := headrace._store_alike(space, current, its_route, 5::smallint, null, type, null, null, null, payloads,
                                 created_at);
    if ids[1] <= floor then
        perform headrace._raise_ids_behind(ids[1]);
    end if;
    perform headrace._enqueue_packed(ids, space, its_route, 5::smallint, queues, created_at);
end $$;
