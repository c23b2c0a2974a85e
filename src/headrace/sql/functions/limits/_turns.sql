-- The order in which a claim takes from pairs of priority and route, and what shares: the most
-- urgent priority first; within it first a fair share for each group (see fair_by in change_queue;
-- without it each pair is one), within a group for each of its pairs; then what a group has left of
-- its share, and then all that is left. Groups and pairs come in a random order. A pair whose first
-- delivery has waited for longer than `aging` also comes at the more urgent priority that this
-- delivery has risen to, with all that have waited for as long.
create or replace function headrace._turns(
    q headrace.queues, pairs headrace.hint[], members headrace.membership[], t timestamptz
) returns setof headrace.turn
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_sort = on
set enable_hashjoin = on
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    return query
        with pair as materialized (
            select p.priority, p.route, p.n as place, f.value, a.level, l.limits
            from unnest(pairs) with ordinality as p(suspect, priority, route, low, next, next_at, n)
            join unnest(headrace._fair_values(q, array(
                select p.route from unnest(pairs) with ordinality as p(suspect, priority, route, low, next, next_at, n)
                order by p.n))) with ordinality as f(value, n) on f.n = p.n
            left join (select m.route, array_agg(m.n) as limits from unnest(members) m group by m.route) l
                on l.route = p.route
            cross join lateral (
                select case when q.aging is not null then greatest(0, p.priority - floor(
                    extract(epoch from t - headrace._first_waits_since(q, p.priority, p.route, p.low))
                    / extract(epoch from q.aging))) end::smallint as level
            ) a
        ),
        entry as materialized (
            select p.place, p.priority as level, null::timestamptz as since, p.limits,
                   case when q.fair_by is null then p.place::text else p.value end as value, random() as spin
            from pair p
            union all
            select p.place, p.level, t - (p.priority - p.level) * q.aging, p.limits,
                   case when q.fair_by is null then p.place::text else p.value end, random()
            from pair p where p.level < p.priority
        ),
        numbered as materialized (
            select e.*, min(e.spin) over g as group_spin, row_number() over (g order by e.spin) as nth,
                   count(*) over g as size
            from entry e window g as (partition by e.level, e.value)
        ),
        ordered as materialized (
            select n.*, dense_rank() over (partition by n.level order by n.group_spin desc, n.value desc) as groups_left
            from numbered n
        )
        select s.part, o.place::int, o.since, case when o.nth = 1 and s.part = 1 then o.groups_left end::int,
               (o.size - o.nth + 1)::int,
               o.limits is not null or q.limits @> '[{"scope": "key"}]', o.limits
        from ordered o cross join (values (1), (2), (3)) as s(part)
        where s.part <> 2 or o.size > 1
        order by o.level, s.part = 3, o.groups_left desc, s.part, o.nth;
end $$;
