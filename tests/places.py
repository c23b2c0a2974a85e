"""Where every delivery is. Whatever happens, it is in exactly one place, and its past agrees with it.

The tables are read as they are, not through the engine's own views, which might be wrong in the same way.
"""

from collections.abc import Callable
from typing import Any

# Every place a delivery can be in, claimed or not, and the attempts it has had there, the current one included.
PLACES = """
    select r.event, r.queue, 'ready' as place, r.attempts, r.failures, false as claimed, null::text as key
    from headrace.ready r where r.key is null and r.pack is null
    union all
    select m.event, r.queue, 'ready', r.attempts, r.failures, false, null
    from headrace.ready r cross join lateral unnest(r.pack) as m(event) where r.pack is not null
    union all
    select k.event, k.queue, 'keyed', k.attempts, k.failures, false, k.key from headrace.keyed k
    union all
    select d.event, d.queue, 'delayed', d.attempts, d.failures, false, d.key from headrace.delayed d
    union all
    select h.event, h.queue, 'held', h.attempt, h.failures, true, h.key from headrace.held h
    union all
    select m.event, l.queue, 'lease', coalesce(m.attempt, 1), coalesce(m.failures, 0), true, null
    from headrace.leases l cross join lateral unnest(l.events, l.attempts, l.failures) with ordinality as m(event, attempt, failures, n)
    where l.done is null or get_bit(l.done, m.n::int - 1) = 0
    union all
    select x.event, x.queue, 'dead', x.attempts, x.failures, false, x.key from headrace.dead_letters x
    union all
    select m.event, o.queue, 'outcome', m.attempt, 0, false, null
    from headrace.outcomes o cross join lateral unnest(o.events, o.attempts) as m(event, attempt)
    where o.action in ('COMPLETED', 'CANCELLED', 'PURGED')
"""

PLACEMENT = f"""
with place as ({PLACES})
select e.id, array_remove(array_agg(p.place order by p.place), null)
from headrace.events e
left join place p on p.event = e.id and p.queue in (select q.id from headrace.queues q where q.name = %(queue)s)
group by e.id
order by e.id
"""

# What is wrong, a line each: none in a sound database.
VIOLATIONS = f"""
with place as materialized ({PLACES}),
ended as materialized (
    select m.event, o.queue, m.attempt, count(*) as times
    from headrace.outcomes o cross join lateral unnest(o.events, o.attempts) as m(event, attempt)
    where o.picked_at is not null and o.lease is not null
    group by m.event, o.queue, m.attempt
),
-- the ends that came after the lease had run out: each takes an abandonment back
late as materialized (
    select m.event, o.queue, m.attempt, count(*) as times, bool_and(o.action in ('COMPLETED', 'COMPLETED_WITH_ERRORS', 'FAILED')) as reported
    from headrace.outcomes o cross join lateral unnest(o.events, o.attempts) as m(event, attempt)
    where o.picked_at is not null and o.lease is null
    group by m.event, o.queue, m.attempt
),
token as materialized (
    select distinct r.queue, r.key from headrace.ready r where r.key is not null
),
wrong(event, queue, problem) as (
    select e.id, t.queue, 'it is nowhere'
    from headrace.events e
    join headrace.bindings b on b.namespace = e.namespace and b.version = e.version and b.route = e.route
    cross join lateral unnest(b.queues) as t(queue)
    left join place p on p.event = e.id and p.queue = t.queue
    where p.event is null
    union all
    select p.event, p.queue, format('it is in %s places: %s', count(*), string_agg(p.place, ', '))
    from place p group by p.event, p.queue having count(*) > 1
    union all
    select p.event, p.queue, format('it is %s, but its event is stored nowhere', p.place)
    from place p
    where p.place not in ('dead', 'outcome')
      and not exists (select from headrace.events e where e.id = p.event)
      and not exists (select from headrace.events_carried c where c.id = p.event)
    union all
    select e.event, e.queue, format('its attempt %s has ended %s times', e.attempt, e.times)
    from ended e where e.times > 1
    union all
    select l.event, l.queue, format('its attempt %s has ended late %s times', l.attempt, l.times)
    from late l
    where l.times > 1 or not l.reported or not exists (
        select from headrace.outcomes o
        where o.queue = l.queue and o.action = 'ABANDONED' and o.attempts[array_position(o.events, l.event)] = l.attempt)
    union all
    select p.event, p.queue, format('it is %s after %s attempts, and those that ended are %s', p.place, p.attempts, d.those)
    from place p
    left join (
        select e.event, e.queue, array_agg(e.attempt order by e.attempt) as those from ended e group by e.event, e.queue
    ) d on d.event = p.event and d.queue = p.queue
    where coalesce(d.those, '{{}}') <> array(select generate_series(1, p.attempts - p.claimed::int))

    -- packs and tokens
    union all
    select r.event, r.queue, format('its pack is %s, with %s as its number', r.pack, r.seq)
    from headrace.ready r
    where r.pack is not null
      and (r.event is distinct from r.pack[1] or r.seq <> r.event or r.suspect or r.attempts + r.failures + r.crashes > 0
           or r.pack <> array(select m from unnest(r.pack) m order by m) or headrace._pack(r.pack[1]) <> headrace._pack(r.pack[cardinality(r.pack)]))
    union all
    select r.event, r.queue, format('a token of the key %s is not one', r.key)
    from headrace.ready r where r.key is not null and (r.event <> 0 or r.pack is not null)

    -- claims
    union all
    select h.event, h.queue, format('the lease %s that holds it is not there', h.lease)
    from headrace.held h
    where not exists (select from headrace.leases l where l.id = h.lease and l.queue = h.queue and l.events is null)
    union all
    select null, l.queue, format('the batch %s has %s of %s members, and done are %s', l.id, cardinality(l.events), l.size, l.done)
    from headrace.leases l
    where l.events is not null
      and (cardinality(l.events) <> l.size or cardinality(l.created_at) <> l.size
           or cardinality(l.attempts) <> l.size or cardinality(l.failures) <> l.size
           or length(l.done) <> l.size or bit_count(l.done) = l.size)

    -- ordering keys: the one of a key that is in work, or waits for its retry, is active
    union all
    select a.event, a.queue, format('it is active under the key %s, but %s', a.key, coalesce(string_agg(p.place, ', '), 'gone'))
    from headrace.active a left join place p on p.event = a.event and p.queue = a.queue
    group by a.queue, a.key, a.event
    having coalesce(bool_and(p.key is distinct from a.key or p.place not in ('held', 'delayed')), true)
    union all
    select p.event, p.queue, format('it is %s, but not active under its key %s', p.place, p.key)
    from place p
    where p.key is not null and (p.claimed or p.place = 'delayed' and p.failures > 0)
      and not exists (select from headrace.active a where a.queue = p.queue and a.key = p.key and a.event = p.event)
    union all
    select min(k.event), k.queue, format('the key %s waits, none of it is active, and there is no token', k.key)
    from headrace.keyed k
    where not exists (select from headrace.active a where a.queue = k.queue and a.key = k.key)
      and not exists (select from token t where t.queue = k.queue and t.key = k.key)
    group by k.queue, k.key
)
select distinct format('event %s in %s/%s: %s', w.event, q.space, q.name, w.problem)
from wrong w join headrace.queues q on q.id = w.queue
order by 1
"""


def check_places(sql: Callable[[str], list[tuple[Any, ...]]]) -> None:
    """Fail if a delivery is lost, doubled or torn; `sql` gives the rows of a statement."""
    problems = [problem for (problem,) in sql(VIOLATIONS)]
    assert not problems, "\n".join(problems)
