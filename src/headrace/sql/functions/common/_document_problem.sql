-- The problem of a JSON document that is kept beside events (metadata, settings, progress):
-- unreadable for some JSON readers, or too large; null: none. Every function that stores one calls
-- this. what: the document's name in the message. See _payload_problem.
create or replace function headrace._document_problem(document jsonb, what text) returns text
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(
        replace(headrace._payload_problem(document), 'the payload', what),
        case when octet_length(document::text) > 64 * 1024 then 'QU003 ' || what || ' is larger than 64 KiB' end)
$$;
