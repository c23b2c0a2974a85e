-- What is wrong with an event as publish takes it; null: nothing. `type` and `payload` are the event's own, `rest` is
-- everything else in it. One expression, which plpgsql evaluates without a query.
create or replace function headrace.problem(event jsonb, type text, payload jsonb, rest jsonb) returns text
language plpgsql stable parallel safe
as $$
begin
    return case
        when jsonb_typeof(event) <> 'object'
            then 'QU001 an event is a JSON object'
        when rest - '{tags,priority,delay,at,max_retries,backoff,title,description,version,source,correlation_id,causation_id,trace_id,producer}'::text[] <> '{}'
            then 'QU001 an event has no field '::text || jsonb_path_query_first(rest - '{tags,priority,delay,at,max_retries,backoff,title,description,version,source,correlation_id,causation_id,trace_id,producer}'::text[], '$.keyvalue().key')::text
        when event ? 'type' and jsonb_typeof(event -> 'type') <> 'string'
            then 'QU001 the type of an event is a string'
        when length(type) not between 1 and 200
            then 'QU001 the type of an event has 1 to 200 characters'
        when type ~ '[,*[:cntrl:]]'
            then 'QU001 the type of an event has no comma, asterisk or control character'
        when rest ? 'tags' and (jsonb_typeof(rest -> 'tags') <> 'array' or rest -> 'tags' @? 'strict $[*] ? (@.type() != "string")')
            then 'QU001 the tags of an event are an array of strings'
        when rest ? 'tags' and jsonb_array_length(rest -> 'tags') > 50
            then 'QU001 an event has at most 50 tags'
        when rest ? 'tags' and rest -> 'tags' @? '$[*] ? (@ like_regex "^\\s*([*]\\s*)?$|[,[:cntrl:]]|^.{101}")'
            then 'QU001 a tag has 1 to 100 characters, no comma, no control character, and is not *'
        when rest ? 'priority' and rest -> 'priority' not in ('0', '1', '2', '3', '4', '5', '6', '7', '8', '9')
            then 'QU001 the priority of an event is a whole number from 0 (first) to 9 (last)'
        when rest ? 'delay' and rest ? 'at'
            then 'QU001 an event has a delay or a time, not both'
        when rest ? 'delay' and not rest @? 'strict $.delay ? (@ == 0 || @ >= 0.000001 && @ <= 315360000)'
            then 'QU001 the delay of an event is a number of seconds, from a microsecond to ten years, or 0'
        when rest ? 'at' and (jsonb_typeof(rest -> 'at') <> 'string' or rest ->> 'at' !~ '^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d(:?\d\d)?)$')
            then 'QU001 the time of an event is written with its zone, as in 2030-01-31T12:00:00Z'
        when rest ? 'max_retries' and not (rest @? 'strict $.max_retries ? (@ >= 0 && @ <= 1000)' and rest ->> 'max_retries' ~ '^\d+$')
            then 'QU001 the max_retries of an event is a whole number from 0 to 1000'
        when rest ?| '{title,description,version,correlation_id,causation_id,trace_id,producer}' and rest @? '$.keyvalue() ? (@.key == "title" || @.key == "description" || @.key == "version"
                       || @.key == "correlation_id" || @.key == "causation_id" || @.key == "trace_id" || @.key == "producer") ? (@.value.type() != "string")'
            then 'QU001 title, description, version, producer and the ids of correlation, causation and trace are strings'
        when rest ? 'source' and (jsonb_typeof(rest -> 'source') <> 'object' or rest -> 'source' @? 'strict $.* ? (@.type() != "string")')
            then 'QU001 the source of an event is an object of strings'
        when pg_column_size(rest) > 64 * 1024
            then 'QU001 what describes an event is larger than 64 KiB'
        when rest ? 'backoff' and headrace.backoff_problem(rest -> 'backoff') is not null
            then headrace.backoff_problem(rest -> 'backoff')
        when pg_column_size(payload) > 1000 or octet_length(payload::text) > 300  -- see harmless
            then headrace.payload_problem(payload)
    end;
end $$;
