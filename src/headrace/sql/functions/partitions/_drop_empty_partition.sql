-- Drops a month of a table if it is empty; returns whether it was. The function looks before it
-- locks: it looks at a month with events once an hour, and no session is to wait for that. The lock
-- of the parent comes first: see _retire_partition.
create or replace function headrace._drop_empty_partition(parent text, name text) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    is_empty boolean;
begin
    execute format('select not exists (select from headrace.%I)', name) into is_empty;
    if is_empty then
        execute format('lock table only headrace.%I in access exclusive mode', parent);
        execute format('lock table headrace.%I in access exclusive mode', name);
        execute format('select not exists (select from headrace.%I)', name) into is_empty;
    end if;
    if is_empty then
        execute format('drop table headrace.%I', name);
    end if;
    return is_empty;
end $$;
