-- The problem that makes a payload unreadable for some reader; null: none. The order matters: the
-- function makes the text only once the payload is known to be small. publish calls this for
-- payloads that are not obviously harmless.
create or replace function headrace._payload_problem(payload jsonb) returns text
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
    select case
        when pg_column_size(payload) > 512 * 1024 and pg_column_size(payload) > 8 * headrace.max_payload()
            then 'QU003 the payload is larger than ' || headrace.max_payload() / 1024 || ' KiB'
        when headrace._json_problem(payload) is not null
            then headrace._json_problem(payload)
        -- The limit is looked up only for a payload larger than the smallest limit that can be set.
        when octet_length(payload::text) > 64 * 1024 and octet_length(payload::text) > headrace.max_payload()
            then 'QU003 the payload is larger than ' || headrace.max_payload() / 1024 || ' KiB'
    end
$$;
