-- Gives a month of events that pg_partman has made the key that headrace.make_partition gives to ours.
create or replace function headrace_partman.add_key(name text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    execute format('alter table headrace.%I add primary key (id)', name);
end $$;
