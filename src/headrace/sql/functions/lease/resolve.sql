-- After a COMMIT whose reply was lost: says whether the finish of this held attempt happened. Waits
-- for the backend that may still be committing it, then returns the action that ended the attempt,
-- or null: it has not ended.
-- Raises QU010, QU011.
create or replace function headrace.resolve(namespace text, queue text, event bigint, attempt int) returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    q headrace.queues;
    answer text;
begin
    perform headrace._check_access(resolve.namespace);
    select * into q from headrace.queues where queues.space = resolve.namespace and queues.name = resolve.queue;
    if not found then
        perform headrace._raise_no_such_queue(resolve.namespace, resolve.queue);
    end if;
    perform headrace._lock_waiting(q, resolve.event, resolve.attempt);   -- a late finish may be about to commit
    perform from headrace.held h
    where h.event = resolve.event and h.queue = q.id and h.attempt = resolve.attempt
    for update;
    if not found then
        select v.action into answer
        from headrace._past_verdicts(q, '{}', array[resolve.event], array[resolve.attempt], null) v;
    end if;
    return answer;
end $$;
