-- The groups with limits of the given routes of a queue, as _limited_groups returns them, and those
-- that have slots; these have no route.
create or replace function headrace._known_groups(q headrace.queues, routes bigint[]) returns headrace.membership[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(array_agg(row(m.route, m.n, m.scope, m.name, m.at_once, m.rate, m.per,
                                  m.burst)::headrace.membership), '{}')
    from (
        select u.route, dense_rank() over (order by u.scope, u.name)::int as n, u.scope, u.name, u.at_once, u.rate,
               u.per, u.burst
        from (
            select m.route, m.scope, m.name, m.at_once, m.rate, m.per, m.burst
            from unnest(headrace._limited_groups(q, routes)) m
            union
            (select distinct on (s.scope, s.name) null::bigint, s.scope, s.name, l.at_once, l.rate,
                    (l.per * 1000000)::bigint, coalesce(l.burst, 0)
             from (select distinct d.scope, d.name from headrace.limit_slots d where d.queue = q.id) s
             join jsonb_to_recordset(q.limits)
                 as l(scope text, match text, prefix text, at_once int, rate int, per numeric, burst int)
                 on l.scope = s.scope and l.at_once is not null
                 and (s.scope = 'queue' or l.match = s.name or starts_with(s.name, l.prefix))
             order by s.scope, s.name, l.match)
        ) u
    ) m
$$;
