-- Claims messages of a queue that is not of dead letters, and completes the claim: see _read.
-- Raises QU030.
create or replace function pgmq._pop(kind text, q headrace.queues, qty integer) returns setof pgmq.message_record
language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off                   -- as poll, and for its reasons
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set enable_nestloop = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_variable
declare
    missing int := qty;
    lot headrace.lot;
begin
    if random() < 0.01 then
        perform pgmq._keep_up();
    end if;
    perform headrace._tick_due(greatest(qty, 100)), headrace._tick_expired(greatest(qty, 100));
    while missing > 0 loop
        lot := headrace._claim(
            q.space, q.name, null, null, false, 'pgmq', least(missing, 1000), interval '1 minute', false, true, null,
            true, null, 'atomic');
        exit when lot.lease is null;
        return query
        select b.id, b.attempt, b.created_at, null::timestamptz, null::timestamptz, pgmq._message(kind, q.space, b),
               b.details -> 'headers'
        from headrace._claimed_events(lot) b;
        perform from headrace.finish(
            q.space, q.name, lot.events, lot.attempts, array_fill(lot.lease, array[cardinality(lot.events)]),
            lease_tokens => array[lot.lease_token::text]);
        delete from headrace.leases l where l.id = lot.lease;   -- a lease with held rows outlives them
        missing := missing - cardinality(lot.events);
    end loop;
end $$;
