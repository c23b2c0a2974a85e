-- Queues the next of the events that were published before a queue began: see create_queue. They
-- have a lower version than the queue, so no publisher delivered them to it, and every event with a
-- lower version is stored by now: see _tick_chores. Reads at most 10,000 events and returns whether
-- there are more; the deliveries and the position are committed together. A queue with a limit is
-- filled no further than its limit; a queue that is off or draining is not filled until it is on
-- again.
create or replace function headrace._fill_from_past(c headrace.chores, q headrace.queues, t timestamptz) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
#variable_conflict use_column
declare
    "limit" int := least(q.high_watermark, q.max_queue_depth);
    room int := least(10000, coalesce("limit" - headrace._depth(q.id, "limit"), 10000));
    looked int;
    queued int;
begin
    if room = 0 or not q.takes or q.state = 'draining' then
        return false;
    end if;
    c.last := coalesce(c.last, (select s.last_value from headrace.ids s));
    with seen as materialized (
        select e.id, e.created_at, e.route, e.priority, e.key, e.type, e.tags, e.namespace = q.namespace
            and e.version < q.version as before,
               e.payload = '{"erased": true}' as may_be_erased
        from headrace.events e
        where e.id > c.done and e.id <= c.last and e.created_at >= c.since
        order by e.id limit 10000
    ),
    its as materialized (
        select r.route from (select distinct on (s.route) s.route, s.type, s.tags from seen s where s.before
                             order by s.route) r
        where q.id = any (headrace._queues_taking(q.namespace, q.version, r.type, r.tags))
    ),
    item as materialized (
        select s.* from seen s
        where s.before and s.route in (select route from its)
          and case when s.may_be_erased then not exists (
                  select from headrace.outcomes o
                  where o.bucket = headrace._bucket(s.id) and o.queue = 0 and o.action = 'ERASED'
                    and s.id = any (o.events))
                      else true end
        order by s.id limit room
    ),
    plain as (  -- events published together are packed, as publish does
        insert into headrace.ready (event, created_at, route, seq, queue, priority, pack)
        select m.event, p.created_at, p.route, m.event, q.id, p.priority, case when p.is_pack then p.ids end
        from (
            select i.created_at, i.route, i.priority, array_agg(i.id order by i.id) as ids, count(*) >= 16 as is_pack
            from item i where i.key is null group by i.created_at, i.route, i.priority, headrace._pack(i.id)
        ) p
        cross join lateral unnest(case when p.is_pack then p.ids[:1] else p.ids end) as m(event)
    ),
    ordered as (
        insert into headrace.keyed (queue, key, event, created_at, route, priority)
        select q.id, i.key, i.id, i.created_at, i.route, i.priority from item i where i.key is not null
    ),
    token as (
        insert into headrace.ready (event, created_at, route, seq, queue, priority, key)
        select distinct on (i.key) 0, t, i.route, i.id, q.id, i.priority, i.key
        from item i where i.key is not null
        order by i.key, i.id
    )
    select s.looked, i.queued, case when i.queued < room then s.last else i.last end into looked, queued, c.done
    from (select count(*) as looked, max(id) as last from seen) s, (select count(*) as queued, max(id) as last
                                                                    from item) i;
    if queued > 0 then
        insert into headrace.counts (at, namespace, queue, published) values (t, q.namespace, q.id, queued);
        perform headrace._wake(q.id);
    end if;
    if looked < 10000 and queued < room then
        delete from headrace.chores d where d.queue = c.queue;
        return false;
    end if;
    update headrace.chores u set done = c.done, last = c.last where u.queue = c.queue;
    return true;
end $$;
