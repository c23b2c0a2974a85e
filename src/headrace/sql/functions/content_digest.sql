-- A number for what an event says, by which the same event is found again: see headrace.sent.
create or replace function headrace.content_digest(type text, payload jsonb, producer text) returns bigint
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
    select hashtextextended(
        jsonb_build_array(coalesce(content_digest.type, 'event'), coalesce(content_digest.payload, 'null'), content_digest.producer)::text, 0)
$$;
