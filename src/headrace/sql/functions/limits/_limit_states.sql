-- The groups of a queue that have a limit and a slot taken or work: see limits. routes: those of a
-- full group that have work.
create or replace function headrace._limit_states(q headrace.queues, t timestamptz) returns table (
    scope text, name text, at_once int, in_progress int, rate int, per float8, burst int, room int,
    next_at timestamptz, waiting bigint, waiting_since timestamptz, routes bigint[]
)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    members headrace.membership[];
begin
    if q.limits is null then
        return;
    end if;
    members := headrace._known_groups(q, array(select p.route from headrace._ready_routes(q.id, 1000) p));
    return query
    with member as materialized (select * from unnest(members)),
    room as materialized (select * from headrace._limit_rooms(q, members, t)),
    wait as materialized (
        select m.n, sum(w.waiting)::bigint as waiting, min(w.since) as since, array_agg(distinct m.route) as routes
        from member m
        join room r on r.n = m.n and r.room = 0
        join headrace._ready_routes(q.id, 1000) p on p.route = m.route
        cross join lateral headrace._waiting_in_pair(q.id, p.suspect, p.priority, p.route) w
        where w.waiting > 0
        group by m.n
    )
    select g.scope, g.name, g.at_once, case when g.at_once is not null then r.taken end, g.rate,
           (g.per / 1000000.0)::float8, case when g.rate is not null then g.burst end, r.room, r.look_at,
           coalesce(w.waiting, 0), w.since, w.routes
    from (select distinct on (m.n) m.* from member m order by m.n) g
    join room r on r.n = g.n
    left join wait w on w.n = g.n
    union all
    select 'key', k.key, null, null, l.rate, l.per::float8, coalesce(l.burst, 0), 0, k.due_at,
           (select count(*) from (select from headrace.keyed d where d.queue = q.id and d.key = k.key limit 1000) d),
           (select d.created_at from headrace.keyed d where d.queue = q.id and d.key = k.key order by d.event limit 1),
           null
    from (select * from headrace.limit_keys k where k.queue = q.id order by k.since limit 100) k
    join jsonb_to_recordset(q.limits) as l(scope text, rate int, per numeric, burst int) on l.scope = 'key';
end $$;
