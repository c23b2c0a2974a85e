-- A queue by its name, for a caller who may work in its namespace. Raises QU010, QU011, and what admit raises.
create or replace function headrace.its_queue(namespace text, queue text) returns headrace.queues
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    q headrace.queues;
begin
    select * into q from headrace.queues o where o.space = its_queue.namespace and o.name = its_queue.queue
      and (not o.bound or headrace.admits(o.space));
    if not found then
        perform headrace.no_such_queue(its_queue.namespace, its_queue.queue);
    end if;
    return q;
end $$;
