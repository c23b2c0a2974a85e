-- Ends the claims whose lease has run out, at most `most` leases; returns their number. Their
-- unfinished deliveries are abandoned, or, of a lenient lease, handed back: see _end_lease. since:
-- as in _tick_due.
-- Concurrency: skips locked rows, so it neither waits for a finish in flight nor takes its
-- deliveries: a lease whose held rows are being finished stays until they are gone.
create or replace function headrace._tick_expired(most int, since timestamptz default '-infinity') returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    t timestamptz := headrace._now();
    mine constant int[] := headrace._accessible_queues();
    expired headrace.leases;
    ended int := 0;
begin
    -- Leases whose deliveries were all finished one by one: only their row is left, and there may
    -- be thousands.
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
        order by l.until limit most * 10  -- leases with finishes in flight must not hold up others
        for update skip locked
    loop
        exit when ended >= most;
        ended := ended + (select r.is_gone from headrace._end_lease(expired, t) r)::int;
    end loop;
    return ended;
end $$;
