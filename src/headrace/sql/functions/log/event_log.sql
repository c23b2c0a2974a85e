-- The log of one event in the order of its entries, in all its queues.
-- Raises QU010; an unknown event has no entries.
create or replace function headrace.event_log(namespace text, event_id bigint)
returns table (id bigint, queue text, action text, worker_id text, attempt int, status_code int, error_message text,
               execution_time_ms int, created_at timestamptz)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    since constant timestamptz := headrace._earliest_time_of(array[event_log.event_id]);
    space int := (select n.id from headrace.namespaces n where n.name = event_log.namespace);
begin
    perform headrace._check_access(event_log.namespace);
    if space is null then
        perform headrace._raise_no_such_queue(event_log.namespace, 'main');
    end if;
    return query
    select l.id, (select q.name from headrace.queues q where q.id = l.queue), l.action, l.worker_id, l.attempt,
           l.status_code, l.error_message, l.execution_time_ms, l.created_at
    from headrace.log_entries l
    where l.event_id = event_log.event_id and l.bucket = headrace._bucket(event_log.event_id) and l.namespace = space
      and (since = '-infinity' or l.stored_at >= since)
    order by l.id;
end $$;
