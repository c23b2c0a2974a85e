-- What makes a payload unreadable for somebody; null: nothing. The order matters: the text is only made once it is known to be small.
-- publish calls this for payloads that are not obviously harmless.
create or replace function headrace.payload_problem(payload jsonb) returns text
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
    select case
        when pg_column_size(payload) > 512 * 1024 and pg_column_size(payload) > 8 * headrace.max_payload()
            then 'QU003 the payload is larger than ' || headrace.max_payload() / 1024 || ' KiB'
        when headrace.unreadable(payload) is not null
            then headrace.unreadable(payload)
        -- The limit is looked up only for what is larger than the smallest that can be set.
        when octet_length(payload::text) > 64 * 1024 and octet_length(payload::text) > headrace.max_payload()
            then 'QU003 the payload is larger than ' || headrace.max_payload() / 1024 || ' KiB'
    end
$$;
