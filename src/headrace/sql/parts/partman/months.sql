-- The months of a table that have pg_partman's names, oldest first, detached months included.
create or replace function headrace_partman.months(
    parent text, out name text, out starts timestamptz, out attached boolean
) returns setof record
language sql stable
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
as $$
    select c.relname, to_timestamp(substr(c.relname, length(parent) + 3), p.suffix), c.relispartition
    from headrace_partman.partman() p, pg_class c
    where c.relnamespace = 'headrace'::regnamespace and c.relkind = 'r'
      and c.relname ~ format(E'^%s_p\\d[\\d_]+$', parent)
    order by 2
$$;
