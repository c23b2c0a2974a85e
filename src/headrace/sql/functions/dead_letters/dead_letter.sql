-- One dead letter: the event with its payload and lineage, the reason of its death, and the number
-- of its attempts.
-- Raises QU010, QU011, QU012.
create or replace function headrace.dead_letter(
    namespace text, event_id bigint, queue text default 'main'
) returns setof headrace.letter
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    q headrace.queues := headrace._queue_named(namespace, queue);
begin
    return query
    select x.event, x.type, x.tags, headrace._readable_json(x.payload), headrace._readable_json(x.details), x.priority,
           x.status, x.reason, x.error, x.fingerprint, x.attempts, x.failures,
           x.crashes, coalesce(x.max_retries, r.max_retries, q.max_retries), x.created_at, x.died_at, x.key
    from headrace.dead_letters x
    left join lateral (     -- the limit that applied to its last failure, which may be its handler's
        select r.max_retries from headrace.errors r where r.event = x.event and r.queue = x.queue
        order by r.outcome desc limit 1
    ) r on true
    where x.queue = q.id and x.event = event_id;
    if not found then
        raise exception using errcode = 'QU012',
            message = format('there is no dead letter %s in the queue %L of the namespace %L', event_id,
                             queue, namespace);
    end if;
end $$;
