-- The problem with the settings of a namespace; null: none. change_namespace explains the settings.
create or replace function headrace._namespace_problem(settings jsonb) returns text
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
    select case
        when jsonb_typeof(settings) is distinct from 'object'
            then 'QU001 the settings of a namespace are a JSON object'
        when settings - '{unhandled,unhandled_after,metadata}'::text[] <> '{}'
            then format('QU001 a namespace has no setting %L', (
                select name from jsonb_object_keys(settings - '{unhandled,unhandled_after,metadata}'::text[]) name
                order by name limit 1))
        when settings -> 'unhandled' not in ('null', '"keep"', '"dead_letter"')
            then 'QU001 unhandled is keep or dead_letter'
        when jsonb_typeof(settings -> 'unhandled_after') not in ('number', 'null')
          or (settings ->> 'unhandled_after')::numeric not between 0 and 31536000
            then 'QU001 unhandled_after is a number of seconds, a year at most'
        when jsonb_typeof(settings -> 'metadata') not in ('object', 'null')
            or pg_column_size(settings -> 'metadata') > 64 * 1024
            then 'QU001 the metadata of a namespace are a JSON object of at most 64 KiB'
        else headrace._document_problem(settings -> 'metadata', 'the metadata of a namespace')
    end
$$;
