-- Ends a claim whose worker is presumed dead, and which the caller has locked: its unfinished
-- deliveries are abandoned, or, if it is lenient, handed back: see _settle.
-- is_gone: all of it has ended; else some of its held rows are being finished, and the lease stays
-- until they are. deliveries: their number.
create or replace function headrace._end_lease(
    expired headrace.leases, t timestamptz, out is_gone boolean, out deliveries int
)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    taken headrace.taken[];
    others jsonb;
begin
    is_gone := false;
    deliveries := 0;
    if expired.events is not null then
        select array_agg(headrace._taken_delivery(
            m.event, coalesce(m.attempt, 1), m.created_at, coalesce(m.failures, 0::smallint), crashes => 0::smallint,
            suspect => false, item => m.n::int, lease => expired.id, "position" => (m.n - 1)::smallint,
            picked_at => expired.picked_at, worker => expired.worker) order by m.n)
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
        select array_agg(headrace._taken_delivery(
            h.event, h.attempt, h.created_at, h.failures, h.crashes, h.suspect, h.key, item => h.position + 1,
            lease => h.lease, "position" => h.position, picked_at => expired.picked_at,
            worker => expired.worker) order by h.position)
        into taken from gone h;
    end if;
    if expired.events is not null or not exists (select from headrace.held h where h.lease = expired.id) then
        delete from headrace.leases l where l.id = expired.id;
        is_gone := true;
    elsif taken is not null then
        update headrace.leases l set reaped = true where l.id = expired.id;  -- no heartbeat extends it
    end if;
    if taken is not null then
        deliveries := cardinality(taken);
        if expired.collects then
            others := (select jsonb_object_agg(k.item, '{"status": "COMPLETED_WITH_ERRORS"}'::jsonb)
                       from unnest(taken) k);
        end if;
        perform headrace._settle(q, headrace._now(), case when expired.lenient then 'release' else 'abandon' end, taken,
                                 null, null, others, expired.token)
        from headrace.queues q where q.id = expired.queue;
    end if;
end $$;
