-- The schema of pg_partman, its major version, and its format of a month in a partition's name.
create or replace function headrace_partman.partman(out home text, out major int, out suffix text)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    select n.nspname, split_part(e.extversion, '.', 1)::int into home, major
    from pg_extension e join pg_namespace n on n.oid = e.extnamespace where e.extname = 'pg_partman';
    if not found then
        raise exception 'pg_partman is gone from this database: "headrace migrate --no-partman" does without it';
    end if;
    suffix := case when major < 5 then 'YYYY_MM' else 'YYYYMMDD' end;
end $$;
