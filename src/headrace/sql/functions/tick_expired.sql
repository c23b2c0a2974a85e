-- Ends the claims whose lease has run out, at most `most` leases; returns how many. Their unfinished deliveries
-- are abandoned, or, of a lenient lease, handed back: see reap. since: as in tick_due.
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
    mine constant int[] := headrace.admitted_queues();
    expired headrace.leases;
    ended int := 0;
begin
    -- Leases whose deliveries were all finished one by one: nothing but their row is left, and there may be thousands.
    with ended as materialized (
        select l.id from headrace.leases l
        where l.until < t and l.until >= since and l.events is null and (mine is null or l.queue = any (mine))
          and (select true from headrace.held h where h.lease = l.id limit 1) is null
        order by l.until limit 5000
        for update skip locked
    )
    delete from headrace.leases l where l.id = any (array(select ended.id from ended));

    for expired in
        select l.* from headrace.leases l
        where l.until < t and l.until >= since and (mine is null or l.queue = any (mine))
        order by l.until limit most * 10  -- those whose finishes are in flight must not keep others from their turn
        for update skip locked
    loop
        exit when ended >= most;
        ended := ended + (select r.is_gone from headrace.reap(expired, t) r)::int;
    end loop;
    return ended;
end $$;
