-- Dead-letters the members of a fresh claim whose event is not stored anywhere (somebody deleted it by hand), each
-- alone: its neighbours were claimed and returned.
create function headrace.bury_bodyless(claim bigint) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    t timestamptz := headrace.now();
    l headrace.leases;
    q headrace.queues;
    lost headrace.taken[];
begin
    select * into l from headrace.leases where id = claim;
    select * into q from headrace.queues where id = l.queue;
    select array_agg(m.event), array_agg(m.attempt) into l.events, l.attempts
    from (
        select u.event, u.attempt, u.created_at from unnest(l.events, l.attempts, l.created_at) as u(event, attempt, created_at)
        union all
        select h.event, h.attempt, h.created_at from headrace.held h where h.lease = claim
    ) m
    where not exists (select from headrace.body(m.event, m.created_at));
    lost := headrace.take_batched(q, l.events, l.attempts, array_fill(claim, array[cardinality(l.events)]))
         || headrace.take_held(q, l.events, l.attempts);
    insert into headrace.dead_letters (event, queue, namespace, created_at, died_at, status, reason, attempts, failures, crashes,
        route, priority, type, payload)
    select k.event, q.id, q.namespace, k.created_at, t, 'FAILED', 'Its event is no longer stored', k.attempt, k.failures, k.crashes,
           0, 5, 'event', 'null'
    from unnest(lost) k;
    perform headrace.record(q, t, 'DEAD_LETTERED', k.lease, k.picked_at, k.worker,
                                     array[k.event], array[k.attempt], array[k.position], null, null)
    from unnest(lost) k;
end $$;
