-- Takes slots for the deliveries in progress of a queue that have none, because they were claimed
-- under other limits. One call at a time for a queue, see _limits_changed: a slot counts as often
-- as it is taken.
create or replace function headrace._count_slots(q headrace.queues) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    if q.limits is null then
        return;
    end if;
    with going_on as materialized (
        select h.event, h.attempt, null::smallint as "position", h.lease, h.route from headrace.held h
        where h.queue = q.id
        union all
        select m.event, null, (m.n - 1)::smallint, l.id, b.route
        from headrace.leases l
        cross join lateral unnest(l.events, l.created_at) with ordinality as m(event, created_at, n)
        cross join lateral headrace._stored_event(m.event, m.created_at) b
        where l.queue = q.id and l.events is not null
          and (l.done is null or get_bit(l.done, m.n::int - 1) = 0)
    )
    insert into headrace.limit_slots (queue, scope, name, lease, events, attempts, positions)
    select q.id, m.scope, m.name, g.lease, array_agg(g.event),
           case when min(g.position) is null then array_agg(g.attempt) end,
           case when min(g.position) is not null then array_agg(g.position) end
    from going_on g
    join unnest(headrace._limited_groups(q, array(select distinct o.route from going_on o))) m on m.route = g.route
    where m.at_once is not null
      and not exists (
        select from headrace.limit_slots s
        where s.queue = q.id and s.scope = m.scope and s.name = m.name and g.event = any (s.events)
          and case when g.attempt is null then s.lease = g.lease
                   else s.attempts[array_position(s.events, g.event)] = g.attempt end)
    group by m.scope, m.name, g.lease;
end $$;
