-- The problem with the header of a file that export_queue did not write; null: none.
create or replace function headrace._export_header_problem(header jsonb) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select case
        when jsonb_typeof(header) is distinct from 'object' or header ->> 'format' is distinct from 'headrace state'
            then 'QU001 this is not the state of a queue that Headrace has exported'
        when header -> 'version' is distinct from '1'
            then format('QU001 the state was exported in the form of version %s, and this release reads version 1',
                        header ->> 'version')
        when header ->> 'origin' is null or header ->> 'exported_at' is null
            or jsonb_typeof(header -> 'settings') is distinct from 'object'
             or jsonb_typeof(header -> 'last_id') is distinct from 'number' or header ->> 'last_id' !~ '^[0-9]{1,16}$'
            then 'QU001 the header of an exported state has an origin, exported_at, last_id and settings'
    end
$$;
