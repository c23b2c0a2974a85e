-- What makes a payload unreadable for somebody; null: nothing. Valid jsonb is not enough: 1e4400 breaks most
-- JSON readers, 81 kB of 1e131071 prints as more than a gigabyte, and ten thousand brackets overflow stacks.
-- The order matters: the text is only made once it is known to be small. publish calls this for payloads
-- that are not obviously harmless.
create or replace function headrace.payload_problem(payload jsonb) returns text
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
    select case
        when pg_column_size(payload) > 512 * 1024 and pg_column_size(payload) > 8 * headrace.max_payload()
            then 'QU003 the payload is larger than ' || headrace.max_payload() / 1024 || ' KiB'
        when payload @? 'strict $.**{150 to last}'
            then 'QU002 the payload is nested more than 150 deep'
        when payload @? 'strict $.** ? (@ > 1.7976931348623157e308 || @ < -1.7976931348623157e308
                                 || (@ > -4.9e-324 && @ < 4.9e-324 && @ != 0))'
            then 'QU002 the payload has a number outside the range of a double'
        -- The limit is looked up only for what is larger than the smallest that can be set.
        when octet_length(payload::text) > 64 * 1024 and octet_length(payload::text) > headrace.max_payload()
            then 'QU003 the payload is larger than ' || headrace.max_payload() / 1024 || ' KiB'
    end
$$;
