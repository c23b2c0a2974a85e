-- Makes the monthly partitions of this month, of the next three, and of the months that a DEFAULT partition caught.
create or replace function headrace.make_partitions() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'            -- a month is a month of UTC
as $$
declare
    parent text;
    key text;
    months timestamptz[];
begin
    for parent, key in values ('events', 'created_at'), ('outcomes', 'at'), ('errors', 'at') loop
        execute format('select array_agg(distinct date_trunc(''month'', %I)) from headrace.%I', key, parent || '_default') into months;
        months := months || array(
            select date_trunc('month', headrace.now()) + make_interval(months => m) from generate_series(0, 3) m);
        perform headrace.make_partition(parent, key, month) from (select distinct unnest(months) as month order by 1) m;
    end loop;
end $$;
