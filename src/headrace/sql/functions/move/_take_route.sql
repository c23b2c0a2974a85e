-- Takes deliveries of one pair of priority and route out of `ready` that were published by a time:
-- those among the first rows of the pair, `most` at most, packs whole. The longest waiting come
-- first there, so none is skipped for ever.
-- Concurrency: skips locked rows.
create or replace function headrace._take_route(
    q headrace.queues, suspect boolean, priority smallint, route bigint, until timestamptz, most int
) returns headrace.taken[]
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    -- rows that are dated later were there, too: the clock was ahead
    ahead constant timestamptz := headrace._now() + interval '1 minute';
    taken headrace.taken[];
begin
    with first as materialized (
        select r.ctid, r.created_at, coalesce(cardinality(r.pack), 1) as size from headrace.ready r
        where r.queue = q.id and r.suspect = _take_route.suspect and r.priority = _take_route.priority
          and r.route = _take_route.route
          and r.key is null
        order by r.seq limit most
    ),
    enough as (
        select s.ctid
        from (select f.ctid, sum(f.size) over (rows unbounded preceding) - f.size as before from first f
              where f.created_at <= until or f.created_at > ahead) s
        where s.before < most
    ),
    picked as materialized (
        select r.ctid from headrace.ready r
        where r.ctid = any (array(select e.ctid from enough e)) for update skip locked
    ),
    gone as (delete from headrace.ready r where r.ctid = any (array(select p.ctid from picked p)) returning r.*)
    select array_agg(
        headrace._taken_delivery(m.event, g.attempts, g.created_at, g.failures, g.crashes, g.suspect))
    into taken from gone g cross join lateral unnest(coalesce(g.pack, array[g.event])) as m(event);
    return coalesce(taken, '{}');
end $$;
