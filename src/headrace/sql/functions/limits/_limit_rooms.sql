-- The number of deliveries that may start now in each of the given groups: by the slots that are
-- free, and by what is left of the rate. look_at: when the rate lets the next one start; null: it
-- does now, or a slot must come free first. A slot is taken if its delivery is still in the claim
-- that took it; taken: the number of slots that are, null where there is no limit at_once.
create or replace function headrace._limit_rooms(
    q headrace.queues, members headrace.membership[], t timestamptz
) returns table (n int, room int, look_at timestamptz, at timestamptz, taken int)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_nestloop = on
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    return query
    select g.n, greatest(least(g.at_once - s.taken, l.level / g.per, 1000000), 0)::int,
           case when l.level < g.per
                then t + make_interval(secs => ceil((g.per - l.level)::numeric / g.rate) / 1000000.0) end,
           f.at, s.taken::int
    from (select distinct on (m.n) m.* from unnest(members) m order by m.n) g
    left join lateral (
        select f.level, f.unit, f.at from headrace.limit_groups f
        where f.queue = q.id and f.scope = g.scope and f.name = g.name and g.rate is not null
        limit 1
    ) f on true
    cross join lateral (
        select case when g.rate is not null
                    then headrace._refilled(f.level, f.unit, f.at, g.rate, g.per, g.burst, t) end as level
    ) l
    cross join lateral (
        select case when g.at_once is not null then (
            select coalesce(sum(case
                when s.attempts is not null then (
                    select count(*) from unnest(s.events, s.attempts) as m(event, attempt)
                    join headrace.held h on h.queue = s.queue and h.event = m.event and h.attempt = m.attempt)
                when c.id is null then 0
                when c.done is null then cardinality(s.positions)
                else (select count(*) from unnest(s.positions) p where get_bit(c.done, p) = 0) end), 0)
            from headrace.limit_slots s left join headrace.leases c on c.id = s.lease and s.attempts is null
            where s.queue = q.id and s.scope = g.scope and s.name = g.name) end as taken
    ) s;
end $$;
