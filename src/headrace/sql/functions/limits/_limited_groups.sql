-- The groups with limits that routes of a queue are in, at_once or rate or both; a route may be in
-- several, and needs room in each. See change_queue. An empty array: in none. The scope key is not
-- here: see _key_is_limited.
create or replace function headrace._limited_groups(q headrace.queues, routes bigint[]) returns headrace.membership[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    return (
        with place as materialized (
            select w.route, r.type, r.tags from (select distinct u.route from unnest(routes) as u(route)) w
            cross join lateral (
                select r.type, r.tags from headrace.routes r where r.route = w.route and r.namespace = q.namespace
                limit 1
            ) r
        ),
        -- Most of many limits name a type or a tag, and are not about these routes: they are not read
        -- any further.
        likely as materialized (
            select l.* from jsonb_array_elements(q.limits) as j(entry)
            cross join lateral jsonb_to_record(j.entry)
                as l(scope text, match text, prefix text, at_once int, rate int, per numeric, burst int)
            where (j.entry ->> 'match') is null
               or strpos(j.entry ->> 'match', '*') > 0
               or (j.entry ->> 'match') = any (array(
                   select p.type from place p union all select t.tag from place p cross join unnest(p.tags) as t(tag)))
        ),
        entry as materialized (
            select l.*, case when l.scope = 'type' then headrace._like_pattern(l.match) end as pattern,
                   array(select case when l.scope = 'type' then headrace._like_pattern(x.match) else x.match end
                         from likely x
                         where x.scope = l.scope and x.match is not null and l.prefix is not null) as exceptions
            from likely l
            where l.scope <> 'key'
        )
        select coalesce(array_agg(row(p.route, p.n, p.scope, p.name, p.at_once, p.rate, p.per * 1000000,
                                      coalesce(p.burst, 0))::headrace.membership), '{}')
        from (
            select p.route, e.*, v.name, dense_rank() over (order by e.scope, v.name) as n
            from place p cross join entry e
            cross join lateral (
                select '' as name where e.scope = 'queue'
                union all
                select coalesce(e.match, p.type)
                where e.scope = 'type'
                  and case when e.match is not null then p.type like e.pattern
                           else starts_with(p.type, e.prefix) and p.type not like all (e.exceptions) end
                union all
                select distinct t.tag from unnest(p.tags) as t(tag)
                where e.scope = 'tag' and case when e.match is not null then t.tag = e.match
                                               else starts_with(t.tag, e.prefix) and t.tag <> all (e.exceptions) end
            ) v
        ) p
    );
end $$;
