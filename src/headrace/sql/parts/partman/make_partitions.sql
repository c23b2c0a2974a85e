-- As headrace._make_partitions: pg_partman makes the coming months, as many as its premake says.
-- This function itself makes this month, if it is missing, and the months whose rows the DEFAULT
-- partition caught, because rows move or are being written.
create or replace function headrace_partman.make_partitions(parent text) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'            -- a month is a month of UTC
as $$
declare
    key text := case parent when 'events' then 'created_at' else 'at' end;
    this_month timestamptz := date_trunc('month', headrace._now());
    partman record := headrace_partman.partman();
    premake int;
    months timestamptz[];
    made int;
begin
    execute format('select premake from %I.part_config where parent_table = %L', partman.home, 'headrace.' || parent)
        into premake;
    execute format('select array_agg(distinct date_trunc(''month'', %I)) from headrace.%I', key, parent || '_default')
        into months;
    select count(*) filter (where headrace._make_partition(parent, key, m.month, parent || '_p'
                                                           || to_char(m.month, partman.suffix)))
    into made
    from (select distinct unnest(months || this_month) as month order by 1) m;
    months := array(
        select this_month + make_interval(months => n) from generate_series(1, premake) n
        where to_regclass(format('headrace.%I', parent || '_p'
                                 || to_char(this_month + make_interval(months => n), partman.suffix))) is null);
    if months <> '{}' then
        -- A lock timeout should raise PostgreSQL's own error, and not pg_partman's, which hides it
        -- in another error.
        execute format('lock table only headrace.%I in share update exclusive mode', parent);
        execute format('lock table headrace.%I in access exclusive mode', parent || '_default');
        execute format(
            'select %I.create_partition_time(p_parent_table => %L, p_partition_times => %L::timestamptz[]%s)',
                       partman.home, 'headrace.' || parent, months,
                       case when partman.major < 5 then ', p_analyze => false' else '' end);
    end if;
    if parent = 'events' then
        perform headrace_partman.add_keys();
    end if;
    return made + cardinality(months);
end $$;
