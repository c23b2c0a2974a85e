-- Stores the events of a part of a file that are not here yet, with the last error, the progress
-- and the idempotency and unique keys of their deliveries. See _import_events.
create or replace function headrace._store_arrivals(
    o headrace.open_imports, q headrace.queues, arrived headrace.arrival[]
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    insert into headrace.events (id, created_at, route, namespace, version, priority, max_retries, type, tags, payload,
                                 details, key)
    -- Of no version of the namespace's queues: none of them took it when it was published.
    select a.id, a.created_at, a.route, q.namespace, 0, a.priority, a.max_retries, a.type, a.tags, a.payload,
           a.details, a.key
    from unnest(arrived) a
    where not a.is_stored and not coalesce((a.item ->> 'hollow')::boolean, false)
    order by a.id;
    insert into headrace.errors (outcome, event, at, queue, attempt, failures, max_retries, retry_at, error)
    select nextval('headrace.ids'), a.id, e.at, q.id, e.attempt, a.failures, e.max_retries, e.retry_at,
           left(e.error, 65536)
    from unnest(arrived) a
    cross join lateral jsonb_to_record(a.item -> 'last_error') as e(
        error text, at timestamptz, attempt int, max_retries smallint, retry_at timestamptz)
    where not a.was_here and jsonb_typeof(a.item -> 'last_error') = 'object';
    insert into headrace.progress (queue, event, attempt, value, saved_at, look_at)
    select q.id, a.id, a.attempts, a.item -> 'progress', headrace._now(), headrace._now() + interval '1 hour'
    from unnest(arrived) a where not a.was_here and a.item ? 'progress'
    on conflict do nothing;
    -- A key that was used here since keeps its event.
    insert into headrace.idempotency (namespace, key, event, created_at, digest)
    select q.namespace, a.item ->> 'idempotency_key', a.id, a.created_at, decode(a.item ->> 'idempotency_digest', 'hex')
    from unnest(arrived) a where not a.is_stored and a.item ?& '{idempotency_key,idempotency_digest}'
    order by 2
    on conflict do nothing;
    insert into headrace.unique_keys (namespace, key, event, created_at, look_at)
    select q.namespace, a.details ->> 'unique', a.id, a.created_at, headrace._now() + interval '1 hour'
    from unnest(arrived) a where not a.was_here and a.place <> 'dead' and a.details ? 'unique'
    order by 2
    on conflict do nothing;
end $$;
