-- A queue by its name. Raises QU010, QU011.
create or replace function headrace.its_queue(namespace text, queue text) returns headrace.queues
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    q headrace.queues;
begin
    select * into q from headrace.queues o where o.space = its_queue.namespace and o.name = its_queue.queue;
    if not found then
        perform headrace.no_such_queue(its_queue.namespace, its_queue.queue);
    end if;
    return q;
end $$;
