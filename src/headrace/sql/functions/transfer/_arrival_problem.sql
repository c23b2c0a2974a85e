-- The problem with an event of a file, beside those that publish would refuse; null: none. One
-- expression, which plpgsql evaluates without a query: see _header_problem.
create or replace function headrace._arrival_problem(
    item jsonb, last_id bigint, kept_ids boolean, t timestamptz
) returns text
language plpgsql stable
as $$
begin
    return case
        when jsonb_typeof(item) <> 'object'
            then 'QU001 an event of an exported state is an object'
        when not item ?& '{id,created_at,type,place,payload}'
            then 'QU001 an event of an exported state has an id, created_at, type, place and payload'
        when case when jsonb_typeof(item -> 'id') = 'number' and item ->> 'id' ~ '^[0-9]{1,16}$'
                  then (item ->> 'id')::bigint not between 1 and last_id else true end
            then 'QU001 the id of an event is a number up to the last_id of the header'
        when kept_ids and headrace._id_at(headrace.place((item ->> 'id')::bigint)) <> (item ->> 'id')::bigint
            then 'QU001 the id of an event is one of the shard in the header'
        when item ->> 'place' = any ('{ready,delayed,in_progress,dead}') is not true
            then 'QU001 the place of an event is ready, delayed, in_progress or dead'
        when (item ->> 'created_at')::timestamptz between '2000-01-01' and t + interval '1 day' is not true
            then 'QU001 the created_at of an event lies before the year 2000 or in the future'
        when item ?| '{attempts,retry_count,crashes,suspect,holds_key,hollow}' and (
                 coalesce(item ->> 'attempts', '0') !~ '^[0-9]{1,9}$'
                     or coalesce(item ->> 'retry_count', '0') !~ '^[0-9]{1,4}$'
                 or coalesce(item ->> 'crashes', '0') !~ '^[0-9]{1,4}$'
                 or coalesce(item ->> 'suspect', 'true') not in ('true', 'false')
                 or coalesce(item ->> 'holds_key', 'true') not in ('true', 'false')
                 or coalesce(item ->> 'hollow', 'true') not in ('true', 'false'))
            then 'QU001 the attempts, retry_count and crashes of an event are whole numbers; suspect, holds_key '
                 'and hollow are true or false'
        when item ? 'last_error' and (
                 jsonb_typeof(item -> 'last_error') <> 'object'
                 or item #>> '{last_error,at}' is null or item #>> '{last_error,error}' is null
                 or coalesce(item #>> '{last_error,attempt}', '') !~ '^[0-9]{1,9}$'
                 or coalesce(item #>> '{last_error,max_retries}', '') !~ '^[0-9]{1,4}$')
            then 'QU001 the last_error of an event has an error, at, attempt and max_retries'
        when item ? 'details' and jsonb_typeof(item -> 'details') <> 'object'
            then 'QU001 the details of an event are an object'
        when item ->> 'place' = 'dead' and (
                 item ->> 'died_at' is null or item ->> 'reason' is null
                 or item ->> 'status' = any ('{FAILED,COMPLETED_WITH_ERRORS}') is not true)
            then 'QU001 a dead letter has died_at, a reason and the status FAILED or COMPLETED_WITH_ERRORS'
        when not headrace._payload_is_plain(item -> 'payload')
            then headrace._payload_problem(item -> 'payload')
    end;
end $$;
