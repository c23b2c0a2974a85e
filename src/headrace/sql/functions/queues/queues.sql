-- The queues of a namespace, by name: the types and tags that they take, their state and settings.
-- depth: the number of waiting deliveries, counted to 10,000, or to the queue's limit if that is
-- more.
-- filling: the queue began in the past and has not got all past events yet; "waiting" for
-- transactions that were open when it was made, or "running". Raises QU010.
create or replace function headrace.queues(namespace text) returns setof headrace.listed_queue
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform headrace._check_access(queues.namespace);
    return query
    select l.* from headrace.queues q cross join lateral headrace._queue_row(q) l
    where q.space = queues.namespace
    order by q.name;
    if not found then
        perform headrace._raise_no_such_queue(queues.namespace, 'main');
    end if;
end $$;
