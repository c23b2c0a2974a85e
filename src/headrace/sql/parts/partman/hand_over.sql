-- Hands a table's months over to pg_partman: it makes the coming months and detaches those past
-- retention, when upkeep calls it; it does not run by itself (automatic_maintenance is off),
-- because upkeep carries live events over in the same transaction. The table's months get
-- pg_partman's names; pg_partman remakes the coming months and the DEFAULT partition. Done once.
create or replace function headrace_partman.hand_over(parent text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'            -- a month is a month of UTC
as $$
declare
    key text := case parent when 'events' then 'created_at' else 'at' end;
    this_month timestamptz := date_trunc('month', headrace._now());
    partman record := headrace_partman.partman();
    month record;
    is_known boolean;
begin
    execute format('select exists (select from %I.part_config where parent_table = %L)', partman.home,
                   'headrace.' || parent) into is_known;
    if is_known then
        return;
    end if;
    perform headrace_partman.take(parent);
    perform headrace._make_partitions(parent);       -- so that nothing is left in the DEFAULT partition
    execute format('drop table headrace.%I', parent || '_default');
    for month in
        select c.relname as name, to_timestamp(right(c.relname, 7), 'YYYY_MM') as starts
        from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = ('headrace.' || parent)::regclass and c.relname ~ E'_\\d{4}_\\d\\d$'
    loop
        if month.starts > this_month then
            execute format('drop table headrace.%I', month.name);
        else
            execute format('alter table headrace.%I rename to %I', month.name,
                           parent || '_p' || to_char(month.starts, partman.suffix));
        end if;
    end loop;
    execute format('select %I.create_parent(
                        p_parent_table => %L, p_control => %L, p_type => %L, p_interval => %L, p_premake => 3,
                        p_start_partition => %L, p_automatic_maintenance => %L, p_jobmon => false)',
                   partman.home, 'headrace.' || parent, key, case when partman.major < 5 then 'native' else 'range' end,
                   '1 month', this_month, 'off');
    execute format('update %I.part_config
                    set retention = %L, retention_keep_table = true, retention_keep_index = true,
                        infinite_time_partitions = true
                    where parent_table = %L', partman.home, headrace._setting('retention'), 'headrace.' || parent);
    -- pg_partman leaves the rest undone if every month exists, and uses no clock but now().
    if to_regclass(format('headrace.%I', parent || '_default')) is null then
        execute format('create table headrace.%I partition of headrace.%I default', parent || '_default', parent);
    end if;
    perform headrace_partman.make_partitions(parent);
end $$;
