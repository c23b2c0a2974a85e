-- What makes a JSON document that is kept beside events (metadata, settings, progress) unreadable for somebody, or too large; null: nothing.
-- Every function that stores one asks this. what: how it is called in the sentence. See payload_problem.
create or replace function headrace.document_problem(document jsonb, what text) returns text
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(
        replace(headrace.payload_problem(document), 'the payload', what),
        case when octet_length(document::text) > 64 * 1024 then 'QU003 ' || what || ' is larger than 64 KiB' end)
$$;
