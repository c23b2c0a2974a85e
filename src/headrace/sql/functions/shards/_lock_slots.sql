-- Takes the lock under which slots change, makes a row for every slot, and returns the number of this
-- shard. Waits for transactions that are making a namespace.
create or replace function headrace._lock_slots() returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '10s'
as $$
begin
    lock table headrace.slots in share row exclusive mode;
    insert into headrace.slots (slot, home, version) select n, 0, 0 from generate_series(0, 1023) n
    on conflict do nothing;
    return (select h.number from headrace.shard h);
end $$;
