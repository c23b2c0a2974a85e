-- The highest number in the tables, if headrace.ids is behind it: the sequence would then give out
-- numbers that are in use.
-- null: the sequence is correct. A full dump has tables and sequence of one moment; a partial dump,
-- or logical replication, copies the rows and leaves the sequence behind. repair_ids repairs it.
-- Cost: one index lookup for each table and month.
-- Concurrency: never waits; clients call it when they connect. Raises 55P03 while another session
-- holds a table under ACCESS EXCLUSIVE.
create or replace function headrace.ids_behind() returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
    highest bigint;
begin
    lock table headrace.events, headrace.events_carried, headrace.leases, headrace.outcomes, headrace.horizons,
        headrace.namespaces,
               headrace.marks in access share mode nowait;
    highest := greatest(
        (select max(e.id) from headrace.events e), (select max(c.id) from headrace.events_carried c),
        (select max(l.id) from headrace.leases l), (select max(o.id) from headrace.outcomes o),
        (select max(h.pending) from headrace.horizons h), (select max(n.floor) from headrace.namespaces n),
        (select max(m.id) from headrace.marks m));
    return case when highest > headrace._last_drawn_id() then highest end;
end $$;
