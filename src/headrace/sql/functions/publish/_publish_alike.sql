-- Stores and queues events that have all but their payloads in common: the same as _publish_batch
-- does, for the most common case, in half the time.
create or replace function headrace._publish_alike(
    space headrace.namespaces, head headrace.head, payloads jsonb, enforce boolean, t timestamptz,
    out ids bigint[], out pressure boolean
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    pressure := space.guarded and headrace._check_capacity(head.queues, enforce or not headrace._is_administrator(), t);
    ids := headrace._store_alike(
        space.id, space.version, head.route, head.priority, head.max_retries, head.type, head.tags, head.details,
        head.key, payloads, t);
    if ids[1] <= space.floor then
        perform headrace._raise_ids_behind(ids[1]);
    end if;
    if head.due_at > t or head.key is not null then
        perform headrace._enqueue_delayed_and_keyed(array[head], ids, array_fill(head.n, array[cardinality(ids)]), t);
        insert into headrace.counts (at, namespace, queue, published)
        select t, space.id, q, cardinality(ids) from unnest(head.queues) q;
        perform headrace._wake(q) from unnest(head.queues) q;
    else
        perform headrace._enqueue_packed(ids, space.id, head.route, head.priority, head.queues, t);
    end if;
end $$;
