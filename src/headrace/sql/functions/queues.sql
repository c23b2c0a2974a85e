-- The queues of a namespace, by name: what they take, their state and settings.
-- depth: how many deliveries wait, counted to 10,000, or to the queue's limit if that is more.
-- filling: it began in the past and has not got all of that yet; "waiting" for transactions that were open when it was
-- made, or "running". Raises QU010.
create or replace function headrace.queues(namespace text) returns setof headrace.listed_queue
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform headrace.admit(queues.namespace);
    return query
    select l.* from headrace.queues q cross join lateral headrace.listed(q) l
    where q.space = queues.namespace
    order by q.name;
    if not found then
        perform headrace.no_such_queue(queues.namespace, 'main');
    end if;
end $$;
