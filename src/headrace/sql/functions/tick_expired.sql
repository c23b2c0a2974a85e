-- Ends the claims whose lease has run out, at most `most` leases; returns how many. Their unfinished deliveries
-- are abandoned, or, of a lenient lease, handed back: see settle. since: as in tick_due.
-- Concurrency: skips what is locked, so a finish in flight is neither waited for nor robbed: a lease whose
-- held rows are being finished stays until they are gone.
create or replace function headrace.tick_expired(most int, since timestamptz default '-infinity') returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    t timestamptz := headrace.now();
    expired headrace.leases;
    taken headrace.taken[];
    ended int := 0;
begin
    -- Leases whose deliveries were all finished one by one: nothing but their row is left, and there may be thousands.
    with ended as materialized (
        select l.id from headrace.leases l
        where l.until < t and l.until >= since and l.events is null
          and (select true from headrace.held h where h.lease = l.id limit 1) is null
        order by l.until limit 5000
        for update skip locked
    )
    delete from headrace.leases l where l.id = any (array(select ended.id from ended));

    for expired in
        select l.* from headrace.leases l
        where l.until < t and l.until >= since
        order by l.until limit most * 10  -- those whose finishes are in flight must not keep others from their turn
        for update skip locked
    loop
        exit when ended >= most;
        if expired.events is not null then
            select array_agg(row(m.n, m.event, coalesce(m.attempt, 1), m.created_at, coalesce(m.failures, 0::smallint), 0, false, expired.id, m.n - 1,
                                 expired.picked_at, expired.worker, null)::headrace.taken order by m.n)
            into taken
            from unnest(expired.events, expired.attempts, expired.created_at, expired.failures) with ordinality
                as m(event, attempt, created_at, failures, n)
            where expired.done is null or get_bit(expired.done, m.n::int - 1) = 0;
        else
            with mine as materialized (
                select h.ctid from headrace.held h where h.lease = expired.id for update skip locked
            ),
            gone as (
                delete from headrace.held h where h.ctid = any (array(select ctid from mine)) returning h.*
            )
            select array_agg(row(h.position + 1, h.event, h.attempt, h.created_at, h.failures, h.crashes, h.suspect, h.lease,
                                 h.position, expired.picked_at, expired.worker, h.key)::headrace.taken order by h.position)
            into taken from gone h;
        end if;
        if expired.events is not null or not exists (select from headrace.held h where h.lease = expired.id) then
            delete from headrace.leases l where l.id = expired.id;
            ended := ended + 1;
        elsif taken is not null then
            update headrace.leases l set reaped = true where l.id = expired.id;  -- no heartbeat brings it back
        end if;
        if taken is not null then
            perform headrace.settle(q, t, case when expired.lenient then 'release' else 'abandon' end, taken, null, null, null)
            from headrace.queues q where q.id = expired.queue;
        end if;
    end loop;
    return ended;
end $$;
