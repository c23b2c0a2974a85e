-- The seconds until deliveries that are just being released, and not snoozed, may be claimed again,
-- by item: 0 if the attempt before was not released, then 1, 2, 4 … 60 for each further release in a row. A delivery
-- that is released again and again, for whatever reason, does not run hot, and an orderly stop or
-- two hardly delays anything. `others` as in finish; an attempt that saves another progress than
-- was stored has come further.
create or replace function headrace._release_delays(
    q headrace.queues, t timestamptz, taken headrace.taken[], others jsonb
) returns int[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    events bigint[];
    attempts int[];
    delays int[] := array_fill(0, array[(select max(k.item) from unnest(taken) k)]);
    late record;
begin
    select array_agg(k.event), array_agg(k.attempt) into events, attempts
    from unnest(taken) k
    where others -> k.item::text ->> 'action' = 'release' and not others -> k.item::text ? 'delay' and k.attempt > 1;
    for late in
        select k.item, r.times
        from headrace._releases_in_a_row(q, t, events, attempts) r
        join unnest(taken) k on k.event = r.event
        left join headrace.progress p on p.queue = q.id and p.event = r.event
        where not others -> k.item::text ? 'progress' or others -> k.item::text -> 'progress' = p.value
    loop
        delays[late.item] := least(60, 1 << least(late.times - 1, 10));
    end loop;
    return delays;
end $$;
