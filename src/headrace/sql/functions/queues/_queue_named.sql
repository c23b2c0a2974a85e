-- A queue by its name, for a caller that may work in its namespace. Raises QU010, QU011, and what
-- _check_access raises.
create or replace function headrace._queue_named(namespace text, queue text) returns headrace.queues
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    q headrace.queues;
begin
    select * into q from headrace.queues o where o.space = _queue_named.namespace and o.name = _queue_named.queue
      and (not o.bound or headrace._has_access(o.space));
    if not found then
        perform headrace._raise_no_such_queue(_queue_named.namespace, _queue_named.queue);
    end if;
    return q;
end $$;
