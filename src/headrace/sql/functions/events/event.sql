-- One event and the status of its delivery in a queue: see _event_states.
-- Raises QU010, QU011, QU012.
create or replace function headrace.event(namespace text, event_id bigint, queue text default 'main')
returns setof headrace.shown
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    q headrace.queues;
begin
    perform headrace._check_access(event.namespace);
    select * into q from headrace.queues where queues.space = event.namespace and queues.name = event.queue;
    if not found then
        perform headrace._raise_no_such_queue(event.namespace, event.queue);
    end if;
    return query select * from headrace._event_states(q, array[event.event_id]);
    if not found then
        raise exception using errcode = 'QU012', message = format('there is no event %s in the namespace %L',
                                                                  event.event_id, event.namespace);
    end if;
end $$;
