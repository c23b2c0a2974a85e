-- The problem with an event as publish takes it, its payload aside; null: none. One expression,
-- which plpgsql evaluates without a query.
create or replace function headrace._header_problem(header jsonb) returns text
language plpgsql stable parallel safe
as $$
declare
    rest constant jsonb := header
        - '{type,tags,priority,key,idempotency_key,delay,at,max_retries,backoff,source,headers}'::text[]
        - '{unique,debounce,settle,at_latest}'::text[];
    -- The fields that are strings and nothing else; each other field has its own check below.
    unknown constant jsonb := rest
        - '{title,description,version,correlation_id,causation_id,trace_id}'::text[]
        - '{producer,scheduled_task_id,scheduled_for,emitted_at}'::text[];
begin
    return case
        when unknown <> '{}'
            then 'QU001 an event has no field '::text || jsonb_path_query_first(unknown, '$.keyvalue().key')::text
        when header ? 'type' and jsonb_typeof(header -> 'type') <> 'string'
            then 'QU001 the type of an event is a string'
        when length(header ->> 'type') not between 1 and 200
            then 'QU001 the type of an event has 1 to 200 characters'
        when header ->> 'type' ~ E'[,*[:cntrl:]]|^\\s|\\s$'
            then 'QU001 the type of an event has no comma, asterisk or control character, and no blank at its ends'
        when header ? 'tags' and (jsonb_typeof(header -> 'tags') <> 'array'
                                  or header -> 'tags' @? 'strict $[*] ? (@.type() != "string")')
            then 'QU001 the tags of an event are an array of strings'
        when header ? 'tags' and jsonb_array_length(header -> 'tags') > 50
            then 'QU001 an event has at most 50 tags'
        when header ? 'tags'
            and header -> 'tags' @? E'$[*] ? (@ like_regex "^\\\\s*([*]\\\\s*)?$|[,[:cntrl:]]|^.{101}")'
            then 'QU001 a tag has 1 to 100 characters, no comma, no control character, and is not *'
        when header ? 'priority' and header -> 'priority' not in ('0', '1', '2', '3', '4', '5', '6', '7', '8', '9')
            then 'QU001 the priority of an event is a whole number from 0 (first) to 9 (last)'
        when header ? 'delay' and header ? 'at'
            then 'QU001 an event has a delay or a time, not both'
        when header ? 'delay' and not header @? 'strict $.delay ? (@ == 0 || @ >= 0.000001 && @ <= 315360000)'
            then 'QU001 the delay of an event is a number of seconds, from a microsecond to ten years, or 0'
        when header ? 'at' and (
            jsonb_typeof(header -> 'at') <> 'string'
            or header ->> 'at'
                !~ E'^\\d{4}-\\d\\d-\\d\\d[T ]\\d\\d:\\d\\d(:\\d\\d(\\.\\d+)?)?(Z|[+-]\\d\\d(:?\\d\\d)?)$')
            then 'QU001 the time of an event is written with its zone, as in 2030-01-31T12:00:00Z'
        when header ? 'max_retries' and not (header @? 'strict $.max_retries ? (@ >= 0 && @ <= 1000)'
                                             and header ->> 'max_retries' ~ E'^\\d+$')
            then 'QU001 the max_retries of an event is a whole number from 0 to 1000'
        when rest <> '{}' and rest @? 'strict $.* ? (@.type() != "string")'
            then 'QU001 title, description, version, producer, the ids of correlation, causation, trace and '
                 'schedule, scheduled_for and emitted_at are strings'
        when header ? 'source' and (jsonb_typeof(header -> 'source') <> 'object'
                                    or header -> 'source' @? 'strict $.* ? (@.type() != "string")')
            then 'QU001 the source of an event is an object of strings'
        when header ? 'source' and header -> 'source' ? 'type'
            and header -> 'source' ->> 'type' <> all ('{workflow,task,integration,external}')
            then 'QU001 the type of a source is workflow, task, integration or external'
        when header ? 'headers' and jsonb_typeof(header -> 'headers') <> 'object'
            then 'QU001 the headers of an event are an object'
        when pg_column_size(header) > 64 * 1024
            then 'QU001 what describes an event is larger than 64 KiB'
        -- Every reader must be able to read headers, as payloads: see _payload_problem.
        when header ? 'headers' and header @? 'strict $.headers.**{150 to last}'
            then 'QU001 the headers of an event are nested more than 150 deep'
        when header ? 'headers' and header @? 'strict $.headers.** ? (
                @ > 1.7976931348623157e308 || @ < -1.7976931348623157e308
                || (@ > -4.9e-324 && @ < 4.9e-324 && @ != 0))'
            then 'QU001 the headers of an event have a number outside the range of a double'
        when header ? 'headers' and octet_length(header ->> 'headers') > 64 * 1024
            then 'QU001 what describes an event is larger than 64 KiB'
        when header ? 'backoff' and headrace._backoff_problem(header -> 'backoff') is not null
            then headrace._backoff_problem(header -> 'backoff')
        when header ? 'key' and (jsonb_typeof(header -> 'key') <> 'string'
                                 or length(header ->> 'key') not between 1 and 200)
            then 'QU001 the key of an event is a string of 1 to 200 characters'
        when header ? 'idempotency_key' and (jsonb_typeof(header -> 'idempotency_key') <> 'string'
                                             or length(header ->> 'idempotency_key') not between 1 and 200)
            then 'QU001 an idempotency key is a string of 1 to 200 characters'
        when header ?| '{unique,debounce,settle,at_latest}'
            then headrace._once_problem(header)
    end;
end $$;
