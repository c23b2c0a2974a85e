-- The problem with the settings of a queue; null: none. change_queue explains the settings.
create or replace function headrace._queue_problem(settings jsonb) returns text
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
    select case
        when jsonb_typeof(settings) is distinct from 'object'
            then 'QU001 the settings of a queue are a JSON object'
        when unknown <> '{}'
            then format('QU001 a queue has no setting %L',
                        (select name from jsonb_object_keys(unknown) name order by name limit 1))
        when not headrace._is_string_list(settings -> 'types', 200)
            then 'QU001 the types of a queue are an array of 1 to 1000 strings, each of 1 to 200 characters, or '
                 'null for every type'
        when settings -> 'types' @? E'$[*] ? (@ like_regex "^\\\\s|\\\\s$")'
            then 'QU001 a type has no blank at its ends'
        when not headrace._is_string_list(settings -> 'tags', 100)
            or settings -> 'tags' @? E'$[*] ? (@ like_regex "^\\\\s|\\\\s$|^[*]$|[,[:cntrl:]]")'
            then 'QU001 the tags of a queue are an array of 1 to 1000 tags, each of 1 to 100 characters, no comma, '
                 'no control character, not *, or null for any'
        when jsonb_typeof(settings -> 'all_tags') not in ('boolean', 'null')
            then 'QU001 all_tags is true or false'
        when jsonb_typeof(settings -> 'takes') not in ('boolean', 'null')
            then 'QU001 takes is true or false'
        when jsonb_typeof(settings -> 'require_lease_token') not in ('boolean', 'null')
            then 'QU001 require_lease_token is true or false'
        when settings -> 'order' not in ('"fair"', '"oldest"', 'null')
            then 'QU001 the order of a queue is fair or oldest'
        when not headrace._is_whole_number(settings -> 'max_retries', 0, 1000)
            then 'QU001 the max_retries of a queue is a whole number from 0 to 1000'
        when settings -> 'backoff' <> 'null' and headrace._backoff_problem(settings -> 'backoff') is not null
            then headrace._backoff_problem(settings -> 'backoff')
        when not headrace._is_whole_number(settings -> 'max_queue_depth', 1, 2147483647)
            then 'QU001 the max_queue_depth of a queue is a whole number from 1 to 2147483647, or null for no limit'
        when not headrace._is_whole_number(settings -> 'high_watermark', 1, 2147483647)
            then 'QU001 the high_watermark of a queue is a whole number from 1 to 2147483647, or null for none'
        when not headrace._is_whole_number(settings -> 'batch_size', 1, 1000)
            then 'QU001 the batch_size of a queue is a whole number from 1 to 1000, or null for what a claim asks for'
        when not headrace._is_whole_number(settings -> 'processing_interval', 1, 3600000)
            then 'QU001 the processing_interval of a queue is a whole number of milliseconds, from 1 to 3600000'
        when not headrace._is_whole_number(settings -> 'persistence_threshold', 1, 2147483647)
            then 'QU001 the persistence_threshold of a queue is a whole number from 1 to 2147483647, or null for none'
        when settings ? 'lease' and case jsonb_typeof(settings -> 'lease')
                when 'number' then (settings ->> 'lease')::numeric not between 0.1 and 604800
                else settings -> 'lease' <> 'null' end
            then 'QU001 the lease of a queue is a number of seconds from 0.1 to 604800, a week, or null for 60'
        when headrace._limits_problem(settings -> 'limits') is not null
            then headrace._limits_problem(settings -> 'limits')
        when headrace._fair_by_problem(settings -> 'fair_by') is not null
            then headrace._fair_by_problem(settings -> 'fair_by')
        when settings ? 'aging' and case jsonb_typeof(settings -> 'aging')
                when 'number' then (settings ->> 'aging')::numeric not between 0.1 and 31536000
                else settings -> 'aging' <> 'null' end
            then 'QU001 the aging of a queue is a number of seconds from 0.1 to 31536000, a year, or null for none'
        when not headrace._is_whole_number(settings -> 'max_snoozes', 0, 1000000)
            then 'QU001 the max_snoozes of a queue is a whole number from 0 to 1000000, or null for no limit'
        when jsonb_typeof(settings -> 'metadata') not in ('object', 'null')
            or pg_column_size(settings -> 'metadata') > 64 * 1024
            then 'QU001 the metadata of a queue are a JSON object of at most 64 KiB'
        else headrace._document_problem(settings -> 'metadata', 'the metadata of a queue')
    end
    from (
        select case when jsonb_typeof(settings) = 'object' then settings
            - '{types,tags,all_tags,takes,max_retries,backoff,max_queue_depth,high_watermark,batch_size}'::text[]
            - '{processing_interval,persistence_threshold,require_lease_token,order,lease,limits,fair_by,aging}'::text[]
            - '{max_snoozes,metadata}'::text[] end as unknown
    ) u
$$;
