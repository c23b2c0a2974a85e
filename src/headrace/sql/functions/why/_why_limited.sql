-- The full limits of the queue that keep a ready delivery from being claimed, each with up to ten
-- deliveries that have its slots: see why.
create or replace function headrace._why_limited(q headrace.queues, s headrace.shown, t timestamptz)
returns setof headrace.reason
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    members headrace.membership[];
begin
    if q.limits is null or s.next_retry_at is not null then
        return;
    end if;
    members := headrace._known_groups(q, array(
        select e.route from headrace._stored_event(s.id, s.created_at) e));
    return query
    select 'limited',
           format('the limit of %s is full: %s', g.whose,
                  case when r.taken >= g.at_once
                       then format('%s of %s are in progress%s', r.taken, g.at_once,
                                   ': ' || (select string_agg('event ' || h, ', ') from unnest(k.holders) h))
                       else format('%s may start in %s s, and the next one at %s', g.rate,
                                   round(g.per / 1000000.0, 3)::float8, headrace._spoken_time(r.look_at)) end),
           null::timestamptz, r.look_at,
           jsonb_strip_nulls(jsonb_build_object(
               'scope', g.scope, 'name', g.name, 'at_once', g.at_once, 'in_progress', r.taken, 'rate', g.rate,
               'per', (g.per / 1000000.0)::float8, 'next_at', r.look_at, 'held_by', k.holders))
    from (select m.*, case m.scope when 'queue' then 'the queue' else format('%s %L', m.scope, m.name) end as whose
          from unnest(members) m where m.route is not null) g
    join headrace._limit_rooms(q, members, t) r on r.n = g.n and r.room = 0
    cross join lateral (
        -- a slot is taken as long as its delivery is in its claim: see limit_slots
        select array_agg(u.event order by u.event) as holders
        from (select c.event from headrace.limit_slots o
              cross join lateral unnest(o.events) with ordinality as c(event, n)
              left join headrace.leases l on l.id = o.lease and o.attempts is null
              where o.queue = q.id and o.scope = g.scope and o.name = g.name
                and case when o.attempts is null
                         then l.id is not null and coalesce(get_bit(l.done, o.positions[c.n]), 0) = 0
                         else exists (select from headrace.held h where h.queue = q.id and h.event = c.event
                                        and h.attempt = o.attempts[c.n]) end
              limit 10) u
        where r.taken >= g.at_once
    ) k
    order by g.scope, g.name;
    return query
    select 'limited',
           format('the rate of its ordering key %L is used up: the next event of the key starts at %s', k.key,
                  headrace._spoken_time(k.due_at)),
           k.since, k.due_at, jsonb_build_object('scope', 'key', 'name', k.key, 'next_at', k.due_at)
    from headrace.limit_keys k where k.queue = q.id and k.key = s.key;
end $$;
