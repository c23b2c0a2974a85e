-- How the delivery of an event has ended for good, by any caller: its status as `action`, and the
-- time; null: it has not ended. For callers that know the event and have no claim on it: see
-- finalize. Raises QU010, QU011.
create or replace function headrace.finalized(
    namespace text, event bigint, queue text default 'main'
) returns headrace.verdict
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    q constant headrace.queues := headrace._queue_named(finalized.namespace, finalized.queue);
    stored headrace.verdict;
begin
    select 1, 'repeated', s.status, s.updated_at, null, s.retry_count, s.max_retries into stored
    from headrace._event_states(q, array[finalized.event]) s
    where s.status not in ('PENDING', 'PROCESSING');
    if found then
        perform headrace._confirm_stored();
        return stored;
    end if;
    return null;
end $$;
