-- Deletes a queue with its messages; false: it does not exist. A namespace's main and its dead
-- letters cannot be dropped here.
-- Raises QU001 for those.
create or replace function pgmq.drop_queue(queue_name text) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    place record := pgmq._queue(drop_queue.queue_name, needed => false);
begin
    if place.kind is null then
        raise notice 'pgmq queue "%" does not exist', drop_queue.queue_name;
        return false;
    elsif place.kind <> 'own' then
        raise exception using errcode = 'QU001', message = format('%L is of the namespace %L', drop_queue.queue_name,
                                                                  (place.q).space),
            hint = 'headrace.delete_namespace deletes it';
    end if;
    perform headrace.delete_queue('pgmq', (place.q).name, with_deliveries => true);
    return true;
end $$;

create or replace function pgmq.drop_queue(queue_name text, partitioned boolean) returns boolean
language sql security definer
set search_path = pg_catalog, pg_temp
as $$ select pgmq.drop_queue(drop_queue.queue_name) $$;
