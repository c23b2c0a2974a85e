-- As headrace._retire_partitions: pg_partman detaches the months that are past retention. Before
-- that, this function carries over the bodies of live events, see headrace._retire_partition;
-- afterwards it drops the months, unless they are to be kept. It treats a month that another call
-- of pg_partman has detached meanwhile likewise.
create or replace function headrace_partman.retire_partitions(
    parent text, out retired int, out problem text, out state text
)
language plpgsql
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'            -- a month is a month of UTC
as $$
declare
    t timestamptz := headrace._retention_clock();
    setting constant text := headrace._setting('retention');
    keeps constant interval := least(setting::interval, interval '100 years');
    drops boolean := headrace._setting('retention_action') = 'drop';
    partman record := headrace_partman.partman();
    month record;
begin
    retired := 0;
    execute format('update %I.part_config set retention = %L where parent_table = %L and retention is distinct from %L',
                   partman.home, setting, 'headrace.' || parent, setting);
    for month in
        select m.name, m.starts + interval '1 month' as ends_at, m.attached from headrace_partman.months(parent) m
        where m.starts + interval '1 month' < t - keeps and (m.attached or drops)
    loop
        perform headrace._carry_over(parent, month.name, month.ends_at);
        if month.attached then
            execute format('lock table only headrace.%I in access exclusive mode', parent);
        end if;
        execute format('lock table headrace.%I in access exclusive mode', month.name);
        retired := retired + 1;
    end loop;
    if retired = 0 then
        return;
    end if;
    execute format(
        'select %I.drop_partition_time(p_parent_table => %L, p_retention => %L, p_keep_table => true, '
        'p_reference_timestamp => %L)',
                   partman.home, 'headrace.' || parent, keeps, t);
    for month in
        select m.name from headrace_partman.months(parent) m
        where drops and not m.attached and m.starts + interval '1 month' < t - keeps
    loop
        execute format('drop table headrace.%I', month.name);
    end loop;
exception when others then
    retired := 0;
    problem := sqlerrm;
    state := sqlstate;
end $$;
