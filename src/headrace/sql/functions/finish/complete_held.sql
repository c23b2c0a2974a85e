-- Completes one delivery that is held on its own, as transactional handlers and HTTP workers end
-- theirs: as finish does, in less time; also late, see _take_late. False: it is not held under this
-- attempt any more, or its token is missing or another; nothing was changed, and finish gives the
-- reason.
-- Concurrency: as of finish. Locks nothing but the delivery's own row, and works at any isolation
-- level.
-- Raises QU010, QU011.
create or replace function headrace.complete_held(
    namespace text, queue text, event bigint, attempt int, ms int default null, code int default null,
    lease_token text default null
) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_variable
declare
    its_queue int;
    space int;
    requires boolean;
    limited boolean;
    t timestamptz;
    lease bigint;
    place smallint;
    key text;
    created_at timestamptz;
begin
    -- Simple statements, each about one table: see publish_one. The first that writes gives the
    -- transaction its xid, before an id is drawn.
    select q.id, q.namespace, q.require_lease_token, q.limits is not null into its_queue, space, requires, limited
    from headrace.queues q where q.space = namespace and q.name = queue
        and (not q.bound or headrace._has_access(namespace));
    if not found then
        perform headrace._raise_no_such_queue(namespace, queue);
    end if;
    if requires and lease_token is null then
        return false;
    end if;
    delete from headrace.held h
    where h.queue = its_queue and h.event = event and h.attempt = attempt
      and (lease_token is null or h.token::text = lease_token)
    -- the time after the row is locked
    returning h.lease, h.position, h.key, h.created_at, headrace._now() into lease, place, key, created_at, t;
    if not found then
        return headrace._complete_late(its_queue, event, attempt, ms, code, lease_token);
    end if;
    insert into headrace.outcomes (id, at, picked_at, bucket, lease, namespace, queue, action, worker, events, attempts,
                                   positions, ms, codes)
    select nextval('headrace.ids'), headrace._log_time(t, l.picked_at), l.picked_at, headrace._bucket(event), lease,
           space, its_queue, 'COMPLETED', l.worker, array[event], array[attempt], array[place],
           case when ms is not null then array[ms] end, case when code is not null then array[code] end
    from headrace.leases l where l.id = lease
    returning at into t;
    insert into headrace.counts (at, namespace, queue, completed, attempts, timed, ms)
    values (t, space, its_queue, 1, 1, (ms is not null)::int, coalesce(ms, 0));
    if limited then
        perform headrace._wake(its_queue);  -- a slot has come free
    end if;
    if key is not null then
        perform headrace._release_keys(
            q, t, array[headrace._taken_delivery(event, attempt, created_at, key => key, lease => lease)])
        from headrace.queues q where q.id = its_queue;
    end if;
    return true;
end $$;
