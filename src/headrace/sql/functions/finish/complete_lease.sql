-- Completes every delivery of a lease, each in `ms` and with `code`: as finish does for a whole
-- batch, without naming its members. `size`: the number that the caller expects. False: the lease
-- has another size now, because some of it has ended, or its token is missing or another; nothing
-- was changed, and finish reports on each.
-- Concurrency: locks the lease until the commit, as finish does for a batch.
-- Raises QU010, QU011.
create or replace function headrace.complete_lease(
    namespace text, queue text, lease bigint, size int, ms int default null, code int default null,
    lease_token text default null
) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_variable
declare
    its_queue int; space int; requires boolean; is_plain boolean;
    events bigint[]; attempts int[]; picked_at timestamptz; worker text;
    t timestamptz;
begin
    -- Simple statements, each about one table: see publish_one. The first that writes gives the
    -- transaction its xid, before an id is drawn.
    select q.id, q.namespace, q.require_lease_token, size = 1 and q.limits is null
    into its_queue, space, requires, is_plain
    from headrace.queues q where q.space = namespace and q.name = queue
        and (not q.bound or headrace._has_access(namespace));
    if not found then
        perform headrace._raise_no_such_queue(namespace, queue);
    end if;
    if requires and lease_token is null then
        return false;
    end if;
    delete from headrace.leases l
    where l.id = lease and l.queue = its_queue and l.size = size and l.events is not null and l.done is null
      and (lease_token is null or l.token::text = lease_token)
    -- the time after the row is locked
    returning l.events, coalesce(l.attempts, array_fill(1, array[l.size])), l.picked_at, l.worker,
              headrace._now()
    into events, attempts, picked_at, worker, t;
    if not found then
        return false;
    end if;
    if is_plain then    -- as _record_completed does it, in half the time
        insert into headrace.outcomes (id, at, picked_at, bucket, lease, namespace, queue, action, worker, events,
                                       attempts, positions, ms, codes)
        values (nextval('headrace.ids'), headrace._log_time(t, picked_at), picked_at, headrace._bucket(events[1]),
                lease, space, its_queue, 'COMPLETED', worker, events, attempts, '{0}',
                case when ms is not null then array[ms] end, case when code is not null then array[code] end)
        returning at into t;
        insert into headrace.counts (at, namespace, queue, completed, attempts, timed, ms)
        values (t, space, its_queue, 1, 1, (ms is not null)::int, coalesce(ms, 0));
        return true;
    end if;
    perform headrace._record_completed(
        q, t, lease, picked_at, worker, events, attempts, null,
        case when ms is not null then array_fill(ms, array[size]) end,
        case when code is not null then array_fill(code, array[size]) end)
    from headrace.queues q where q.id = its_queue;
    return true;
end $$;
