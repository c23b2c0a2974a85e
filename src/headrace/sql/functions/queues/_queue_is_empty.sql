-- Whether a queue has neither unfinished deliveries nor dead letters.
create or replace function headrace._queue_is_empty(q headrace.queues) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select not exists (select from headrace.deliveries d where d.queue = q.id)
       and not exists (select from headrace.dead_letters x where x.queue = q.id)
$$;
