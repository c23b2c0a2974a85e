-- Gives the months of events that pg_partman has made the key that headrace._make_partition gives
-- to ours.
create or replace function headrace_partman.add_keys() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    month regclass;
begin
    for month in
        select i.inhrelid from pg_inherits i
        where i.inhparent = 'headrace.events'::regclass
          and not exists (select from pg_index x where x.indrelid = i.inhrelid and x.indisprimary)
    loop
        execute format('alter table %s add primary key (id)', month);
    end loop;
end $$;
