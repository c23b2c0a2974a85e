-- One queue, as `queues` lists them. Raises QU010, QU011.
create or replace function headrace.queue(namespace text, queue text default 'main') returns headrace.listed_queue
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$ select headrace._queue_row(headrace._queue_named(queue.namespace, queue.queue)) $$;
