-- Ends messages: they are done, whichever reader holds them. Returns those that existed. See _end.
-- Raises 42P01, QU023.
create or replace function pgmq.delete(queue_name text, msg_id bigint) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    place record := pgmq._queue(delete.queue_name, works => true);
begin
    return pgmq._end(place.kind, place.q, array[delete.msg_id]) <> '{}';
end $$;

create or replace function pgmq.delete(queue_name text, msg_ids bigint[]) returns setof bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    place record := pgmq._queue(delete.queue_name, works => true);
begin
    return query select unnest(pgmq._end(place.kind, place.q, delete.msg_ids));
end $$;
