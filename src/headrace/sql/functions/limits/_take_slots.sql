-- Takes the slots and the starts of a claim whose groups are locked: see _lock_limit_groups.
-- routes, keys: of its deliveries.
create or replace function headrace._take_slots(
    q headrace.queues, lot headrace.lot, routes bigint[], keys text[], members headrace.membership[]
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_nestloop = off   -- a nested loop over two arrays is quadratic
set enable_hashjoin = on
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    starts headrace.membership[];   -- the groups with a rate; `n` is the number of starts
begin
    with place as (
        select u.event, u.attempt, (u.n - 1)::smallint as "position", m.scope, m.name, m.at_once, m.rate, m.per, m.burst
        from unnest(lot.events, lot.attempts, routes) with ordinality as u(event, attempt, route, n)
        join unnest(members) m on m.route = u.route
    ),
    taken as materialized (
        select p.scope, p.name, min(p.at_once) as at_once, min(p.rate) as rate, min(p.per) as per,
               min(p.burst) as burst, count(*)::int as size, array_agg(p.event order by p.position) as events,
               array_agg(p.attempt order by p.position) as attempts,
               array_agg(p.position order by p.position) as positions
        from place p group by p.scope, p.name
    ),
    slot as (
        insert into headrace.limit_slots (queue, scope, name, lease, events, attempts, positions)
        select q.id, k.scope, k.name, lot.lease, k.events, case when lot.held then k.attempts end,
               case when not lot.held then k.positions end
        from taken k where k.at_once is not null
    )
    select array_agg(row(null, k.size, k.scope, k.name, null, k.rate, k.per, k.burst)::headrace.membership)
    into starts from taken k where k.rate is not null;
    if keys is not null then
        starts := starts || array(
            select row(null, 1, 'key', k.key, null, l.rate, l.per * 1000000, coalesce(l.burst, 0))::headrace.membership
            from unnest(keys) as k(key)
            cross join jsonb_to_recordset(q.limits) as l(scope text, rate int, per numeric, burst int)
            where k.key is not null and l.scope = 'key');
    end if;
    if starts is not null then
        perform headrace._take_starts(q.id, starts, lot.picked_at);
    end if;
end $$;
