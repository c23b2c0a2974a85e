-- Stores one event that has nothing but a type and a payload, and queues it: as publish does, in
-- less time. pressure: as in publish.
-- Concurrency: never waits. The event exists when, and only when, the caller's transaction commits.
-- Raises QU001, QU002, QU003, QU010, QU050, QU051.
create or replace function headrace.publish_one(
    namespace text,
    type text,
    payload jsonb,
    enforce boolean default true,
    out id bigint,
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
    queue int;
    calm boolean;
begin
    -- Simple statements, each about one table if it can be, and few expressions, which plpgsql
    -- prepares anew in every transaction: every other way to write this takes longer.
    select s.id, s.version, s.guarded, s.floor into space, current, guarded, floor from headrace.namespaces s
    where s.name = namespace and (not s.bound or headrace._has_access(namespace));    -- else _publish_batch refuses it
    -- An id drawn before the transaction has an xid could commit below a bound that was declared
    -- final.
    select headrace._now(), pg_current_xact_id(), b.route, b.queues into created_at, xid, its_route, queues
    from headrace.bindings b
    where b.route = headrace._route(type, null) and b.namespace = space and b.version = current and b.type = type
      and b.created_at > headrace._now() - interval '30 days'  -- see _forget_routes
      and headrace._payload_is_plain(payload);
    if not found then   -- a type that is new, or invalid; a payload that needs a check
        xid := pg_current_xact_id();
        select p.ids[1], p.created_at, p.pressure into id, created_at, pressure
        from headrace._publish_batch(
            namespace, jsonb_build_object('type', type, 'payload', coalesce(payload, '{}')), enforce,
            headrace._now()) p;
        return;
    end if;

    pressure := false;
    if guarded then     -- as _check_capacity, in one look: there is room, and it was counted a moment ago
        foreach queue in array queues loop
            select q.state <> 'draining' and (
                       coalesce(q.max_queue_depth, q.high_watermark) is null
                       or d.depth < least(q.max_queue_depth, q.high_watermark)
                          and created_at between d.at and d.at + headrace._depth_is_good_for(q, d.depth) / 2)
            into calm
            from headrace.queues q
            left join lateral (select n.at, n.depth from headrace.depths n where n.queue = queue order by n.at desc
                               limit 1) d on true
            where q.id = queue;
            if calm is not true then
                pressure := headrace._check_capacity(queues, enforce or not headrace._is_administrator(), created_at);
                exit;
            end if;
        end loop;
    end if;

    insert into headrace.events (id, created_at, route, namespace, version, priority, type, payload)
    values (nextval('headrace.ids'), created_at, its_route, space, current, 5, type, payload)
    returning events.id into id;
    if id <= floor then
        perform headrace._raise_ids_behind(id);
    end if;
    foreach queue in array queues loop
        insert into headrace.ready (event, created_at, route, seq, queue, priority)
        values (id, created_at, its_route, id, queue, 5);
        insert into headrace.counts (at, namespace, queue, published) values (created_at, space, queue, 1);
        -- the first test of _wake, because mostly no worker sleeps
        if not (pg_try_advisory_lock(headrace._advisory_lock('sleepers'), queue)
                and pg_advisory_unlock(headrace._advisory_lock('sleepers'), queue)) then
            perform headrace._wake(queue);
        end if;
    end loop;
end $$;
