-- The opposite of hand_over: the months get our names back. Works also where pg_partman is gone.
create or replace function headrace_partman.take_back(parent text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
as $$
declare
    home text := (select n.nspname from pg_extension e join pg_namespace n on n.oid = e.extnamespace
                  where e.extname = 'pg_partman');
    month record;
begin
    perform headrace_partman.take(parent);
    if home is not null then
        execute format('delete from %I.part_config where parent_table = %L', home, 'headrace.' || parent);
        execute format('drop table if exists %I.%I', home, 'template_headrace_' || parent);
    end if;
    for month in
        select c.relname as name, substr(c.relname, length(parent) + 3, 4) as year,
               right(c.relname, -length(parent) - 6) as rest
        from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = ('headrace.' || parent)::regclass and c.relname ~ format(E'^%s_p\\d[\\d_]+$', parent)
    loop
        execute format('alter table headrace.%I rename to %I', month.name,
                       format('%s_%s_%s', parent, month.year, left(ltrim(month.rest, '_'), 2)));
    end loop;
end $$;
