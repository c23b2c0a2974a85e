-- The highest number in the tables, if headrace.ids has not been drawn as far: then numbers that are taken would be given to others.
-- null: all is well. A dump has tables and sequence of one moment; a part of one, or logical replication, brings the rows and
-- leaves the sequence behind. repair_ids mends it.
-- Cost: a look into an index for each table and month.
-- Concurrency: waits for nobody; clients ask when they connect. Raises 55P03 while somebody keeps a table from its readers.
create or replace function headrace.ids_behind() returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
    highest bigint;
begin
    lock table headrace.events, headrace.events_carried, headrace.leases, headrace.outcomes, headrace.horizons, headrace.namespaces,
               headrace.marks in access share mode nowait;
    highest := greatest(
        (select max(e.id) from headrace.events e), (select max(c.id) from headrace.events_carried c),
        (select max(l.id) from headrace.leases l), (select max(o.id) from headrace.outcomes o),
        (select max(h.pending) from headrace.horizons h), (select max(n.floor) from headrace.namespaces n),
        (select max(m.id) from headrace.marks m));
    return case when highest > headrace.drawn() then highest end;
end $$;
