-- A digest of an event's content, by which the same event is found again: see headrace.sent.
create or replace function headrace._content_digest(type text, payload jsonb, producer text) returns bigint
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
    select hashtextextended(
        jsonb_build_array(coalesce(_content_digest.type, 'event'), coalesce(_content_digest.payload, 'null'),
                          _content_digest.producer)::text, 0)
$$;
