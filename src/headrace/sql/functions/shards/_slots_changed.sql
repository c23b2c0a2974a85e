-- Tells publishers whether they must look where keys have their homes. Transactions that are open now
-- may not know of it: see slots_left.
create or replace function headrace._slots_changed() returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
    update headrace.namespaces n set sharded = i.sharded
    from (select headrace._is_sharded() as sharded) i
    where n.sharded <> i.sharded
$$;
