-- Claims messages of a queue that is not of dead letters. Each message gets a lenient lease of its
-- own, so that set_vt moves only the message it names. A timeout that is over at once (vt <= 0)
-- counts the read and leaves the message visible. The function first handles due delays and expired
-- leases: no other tick need ever run. Raises QU001, QU030.
create or replace function pgmq._read(
    kind text, q headrace.queues, vt integer, qty integer
) returns setof pgmq.message_record
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
    t timestamptz := headrace._now();
    until timestamptz := t + make_interval(secs => vt);
    missing int := qty;
    lot headrace.lot;
    released headrace.taken[] := '{}';
begin
    if vt is null or qty is null then
        raise exception using errcode = 'QU001', message = 'vt and qty are numbers';
    end if;
    if random() < 0.01 then
        perform pgmq._keep_up();
    end if;
    perform headrace._tick_due(greatest(qty, 100)), headrace._tick_expired(greatest(qty, 100));
    while missing > 0 loop
        -- The lease gets a worker's name below: a worker without a name may have any number of
        -- suspects.
        lot := headrace._claim(q.space, q.name, null, null, false, '', least(missing, 1000), interval '1 minute', true,
                               true, null, true, null, 'atomic');
        exit when lot.lease is null;
        return query
        select b.id, b.attempt, b.created_at, t, until,
               pgmq._message(kind, q.space, b), b.details -> 'headers'
        from headrace._claimed_events(lot) b;
        if until > t then
            perform pgmq._part(q, lot.lease, until);
        else
            update headrace.leases l set worker = 'pgmq' where l.id = lot.lease;
            released := released || headrace._take_held(q, lot.events, lot.attempts);
            delete from headrace.leases l where l.id = lot.lease;
        end if;
        missing := missing - cardinality(lot.events);
    end loop;
    if released <> '{}' then
        perform headrace._settle(q, t, 'release', released, null, null, null);
    end if;
end $$;
