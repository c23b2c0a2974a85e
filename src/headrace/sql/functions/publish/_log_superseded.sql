-- Logs that a waiting delivery was superseded, its end. is_in_line: it was in line for the turn of
-- its ordering key, so the key is left a token.
create or replace function headrace._log_superseded(
    q headrace.queues, t timestamptz, last headrace.debounce_keys, by bigint, is_in_line boolean
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    insert into headrace.outcomes (id, at, bucket, namespace, queue, action, events, attempts, superseded_by)
    values (nextval('headrace.ids'), headrace._log_time(t, last.created_at), headrace._bucket(last.event),
            q.namespace, q.id, 'SUPERSEDED', array[last.event], '{0}', by);
    if is_in_line then
        perform headrace._release_keys(q, t, array[
            headrace._taken_delivery(last.event, 0, last.created_at, key => last.ordering_key)]);
    end if;
end $$;
