-- Queues the events of a batch that cannot be claimed directly: delayed events to `delayed`, events
-- with an ordering key to `keyed`, with one token for each key, because they become visible
-- together. Debounced ones are for _enqueue_debounced. `which`: the head of each of `ids`.
create or replace function headrace._enqueue_delayed_and_keyed(
    heads headrace.head[], ids bigint[], which int[], t timestamptz
) returns void
language sql
as $$
    with item as materialized (
        select u.id, h.route, h.priority, h.key, h.due_at, q as queue
        from unnest(ids, which) as u(id, head)
        join unnest(heads) h on h.n = u.head
        cross join lateral unnest(h.queues) q
        where (h.due_at > t or h.key is not null) and h.debounce is null
    ),
    put_off as (
        insert into headrace.delayed (event, created_at, due_at, route, queue, priority, key)
        select id, t, due_at, route, queue, priority, key from item where due_at > t
    ),
    ordered as (
        insert into headrace.keyed (queue, key, event, created_at, route, priority)
        select queue, key, id, t, route, priority from item where due_at is null or due_at <= t
    )
    insert into headrace.ready (event, created_at, route, seq, queue, priority, key)
    select distinct on (queue, key) 0, t, route, id, queue, priority, key
    from item where due_at is null or due_at <= t
    order by queue, key, id
$$;
