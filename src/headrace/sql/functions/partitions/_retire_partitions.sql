-- Drops, or detaches, the months of a table that are past retention, by a time that is certain: see
-- _retention_clock. Drops the empty months more than half a year ahead, which a wrong clock has
-- left. Returns their number and the first problem: a month that cannot be dropped does not hold up
-- the others. Whole partitions only: the log is never edited. pg_partman detaches the months where
-- it is in charge of the table.
create or replace function headrace._retire_partitions(parent text, out retired int, out problem text, out state text)
language plpgsql
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'            -- a month is a month of UTC
as $$
declare
    oldest timestamptz := headrace._retained_since('retention', headrace._retention_clock());
    newest timestamptz := headrace._now() + interval '6 months';
    month record;
begin
    if exists (select from headrace.optional o where o.name = 'partman') then
        select * into retired, problem, state from headrace_partman.retire_partitions(parent);
        return;
    end if;
    retired := 0;
    for month in
        select c.relname as name, to_timestamp(right(c.relname, 7), 'YYYY_MM') + interval '1 month' as ends_at
        from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = ('headrace.' || parent)::regclass and c.relname ~ E'_\\d{4}_\\d\\d$'
        order by c.relname
    loop
        continue when month.ends_at > oldest and month.ends_at < newest;
        begin
            if month.ends_at > newest then
                retired := retired + headrace._drop_empty_partition(parent, month.name)::int;
            else
                perform headrace._retire_partition(parent, month.name, month.ends_at);
                retired := retired + 1;
            end if;
        exception when others then
            problem := coalesce(problem, sqlerrm);
            state := coalesce(state, sqlstate);
        end;
    end loop;
end $$;
