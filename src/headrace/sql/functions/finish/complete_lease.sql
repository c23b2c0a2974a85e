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
#variable_conflict use_column
declare
    q headrace.queues;
    whole headrace.leases;
    xid xid8 := pg_current_xact_id();  -- before an id is drawn: see publish
begin
    select * into q from headrace.queues where queues.space = complete_lease.namespace
        and queues.name = complete_lease.queue
      and (not queues.bound or headrace._has_access(queues.space));
    if not found then
        perform headrace._raise_no_such_queue(complete_lease.namespace, complete_lease.queue);
    end if;
    if q.require_lease_token and lease_token is null then
        return false;
    end if;
    delete from headrace.leases l
    where l.id = lease and l.queue = q.id and l.size = complete_lease.size and l.events is not null and l.done is null
      and (lease_token is null or l.token::text = lease_token)
    returning * into whole;
    if not found then
        return false;
    end if;
    perform headrace._record_completed(
        q, headrace._now(), whole.id, whole.picked_at, whole.worker, whole.events,
        coalesce(whole.attempts, array_fill(1, array[whole.size])), null,
        case when ms is not null then array_fill(ms, array[whole.size]) end,
        case when code is not null then array_fill(code, array[whole.size]) end);
    return true;
end $$;
