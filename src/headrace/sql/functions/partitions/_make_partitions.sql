-- Makes the monthly partitions of a table: of this month, of the next three, and of the months
-- whose rows its DEFAULT partition caught. Returns the number of partitions made. pg_partman makes
-- them where it is in charge of the table.
create or replace function headrace._make_partitions(parent text) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'            -- a month is a month of UTC
as $$
declare
    key text := case parent when 'events' then 'created_at' else 'at' end;
    months timestamptz[];
    made int;
begin
    if exists (select from headrace.optional o where o.name = 'partman') then
        return headrace_partman.make_partitions(parent);
    end if;
    execute format('select array_agg(distinct date_trunc(''month'', %I)) from headrace.%I', key, parent || '_default')
        into months;
    months := months || array(
        select date_trunc('month', headrace._now()) + make_interval(months => m) from generate_series(0, 3) m);
    select count(*) filter (where headrace._make_partition(parent, key, m.month)) into made
    from (select distinct unnest(months) as month order by 1) m;
    return made;
end $$;
