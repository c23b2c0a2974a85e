-- Makes the lease over a delivery last for `by` from now, or, if that is null, for as long as it
-- was claimed for; for callers that know an event and perhaps only their own name: attempt null
-- means the claim that the worker holds. A named worker must be the holder, a named lease token the
-- claim's. Every delivery of the same claim is extended with it. Answers as extend does.
-- Concurrency: never waits. Raises QU001, QU010, QU011.
create or replace function headrace.heartbeat(
    namespace text, event bigint, attempt int default null, worker text default null, queue text default 'main',
    by interval default null, lease_token text default null,
    out state text, out lease_expires_at timestamptz, out taken jsonb
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    q headrace.queues := headrace._queue_named(heartbeat.namespace, heartbeat.queue);
    named constant int := (headrace._attempts_by_worker(q, array[heartbeat.event], array[heartbeat.attempt],
                                                        array[heartbeat.worker]))[1];
    its bigint := (select h.lease from headrace.held h where h.queue = q.id and h.event = heartbeat.event
                       and h.attempt = named);
begin
    if its is null then
        select l.id into its from headrace.leases l
        where l.id = (headrace._leases_of(q, '{}', array[heartbeat.event], array[named], null))[1]
          and coalesce(get_bit(l.done, array_position(l.events, heartbeat.event) - 1), 0) = 0;
    end if;
    if heartbeat.worker is not null then
        select l.id into its from headrace.leases l where l.id = its and l.worker = heartbeat.worker;
    end if;
    select x.state, x.lease_expires_at, x.taken
    into heartbeat.state, heartbeat.lease_expires_at, heartbeat.taken
    from headrace.extend(heartbeat.namespace, heartbeat.queue, array[coalesce(its, 0)], heartbeat.by,
                         array[heartbeat.lease_token]) x;
end $$;
