-- What is wrong with an event as publish takes it; null: nothing. One expression, so that PostgreSQL inlines it
-- into publish: an event with a type and a small payload passes after the first branch.
-- A payload of at most 1,000 bytes cannot be nested deeper than 125, and no number outside the range of a
-- double prints in 300 characters, so those two cheap looks stand for payload_problem's thorough ones.
create function headrace.problem(event jsonb) returns text
language sql immutable parallel safe
as $$
    select case
        when event - '{type,payload}'::text[] = '{}'
            and jsonb_typeof(event -> 'type') = 'string'
            and length(event ->> 'type') between 1 and 200
            and translate(event ->> 'type', E',*\x01\x02\x03\x04\x05\x06\x07\b\t\n\x0b\f\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x7f', '') = event ->> 'type'
            and pg_column_size(event -> 'payload') <= 1000
            and octet_length((event -> 'payload')::text) <= 300
            then null
        when jsonb_typeof(event) <> 'object'
            then 'QU001 an event is a JSON object'
        when event - '{type,payload,tags,priority,delay,at,max_retries,backoff,title,description,version,source,correlation_id,causation_id,trace_id,producer}'::text[] <> '{}'
            then 'QU001 an event has no field '::text || jsonb_path_query_first(event - '{type,payload,tags,priority,delay,at,max_retries,backoff,title,description,version,source,correlation_id,causation_id,trace_id,producer}'::text[], '$.keyvalue().key')::text
        when event ? 'type' and jsonb_typeof(event -> 'type') <> 'string'
            then 'QU001 the type of an event is a string'
        when event ? 'type' and length(event ->> 'type') not between 1 and 200
            then 'QU001 the type of an event has 1 to 200 characters'
        when event ->> 'type' ~ '[,*[:cntrl:]]'
            then 'QU001 the type of an event has no comma, asterisk or control character'
        when event ? 'tags' and jsonb_typeof(event -> 'tags') <> 'array'
            then 'QU001 the tags of an event are an array of strings'
        when event ? 'tags' and jsonb_array_length(event -> 'tags') > 50
            then 'QU001 an event has at most 50 tags'
        when event -> 'tags' @? '$[*] ? (@.type() != "string")'
            then 'QU001 the tags of an event are an array of strings'
        when event -> 'tags' @? '$[*] ? (@ like_regex "^\\s*[*]?\\s*$" || @ like_regex "[,[:cntrl:]]" || @ like_regex "^.{101}")'
            then 'QU001 a tag has 1 to 100 characters, no comma, no control character, and is not *'
        when event ? 'priority' and event -> 'priority' not in ('0', '1', '2', '3', '4', '5', '6', '7', '8', '9')
            then 'QU001 the priority of an event is a whole number from 0 (first) to 9 (last)'
        when event ? 'delay' and event ? 'at'
            then 'QU001 an event has a delay or a time, not both'
        when event ? 'delay' and not event @? '$.delay ? (@ >= 0 && @ <= 315360000)'
            then 'QU001 the delay of an event is a number of seconds from 0 to ten years'
        when event ? 'at' and (jsonb_typeof(event -> 'at') <> 'string' or event ->> 'at' !~ '^\d{4}-\d\d-\d\d[T ]\d\d:\d\d')
            then 'QU001 the time of an event is written as in 2030-01-31T12:00:00Z'
        when event ? 'max_retries' and not (event @? '$.max_retries ? (@ >= 0 && @ <= 1000)' and event ->> 'max_retries' ~ '^\d+$')
            then 'QU001 the max_retries of an event is a whole number from 0 to 1000'
        when event @? '$.keyvalue() ? (@.key == "title" || @.key == "description" || @.key == "version"
                       || @.key == "correlation_id" || @.key == "causation_id" || @.key == "trace_id" || @.key == "producer") ? (@.value.type() != "string")'
            then 'QU001 title, description, version, producer and the ids of correlation, causation and trace are strings'
        when event ? 'source' and (jsonb_typeof(event -> 'source') <> 'object' or event -> 'source' @? '$.* ? (@.type() != "string")')
            then 'QU001 the source of an event is an object of strings'
        when pg_column_size(event - 'payload') > 64 * 1024
            then 'QU001 what describes an event is larger than 64 KiB'
        when event ? 'backoff' and headrace.backoff_problem(event -> 'backoff') is not null
            then headrace.backoff_problem(event -> 'backoff')
        else headrace.payload_problem(event -> 'payload')
    end
$$;
