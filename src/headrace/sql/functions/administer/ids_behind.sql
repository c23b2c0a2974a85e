-- The highest number in the tables, if headrace.ids is behind it: the sequence would then give out
-- numbers that are in use. A sequence whose numbers would be another shard's is refused: see
-- _check_shard.
-- null: the sequence is correct. A full dump has tables and sequence of one moment; a partial dump,
-- or logical replication, copies the rows and leaves the sequence behind. repair_ids repairs it.
-- Cost: one index lookup for each table and month.
-- Concurrency: never waits; clients call it when they connect. Raises 55P03 while another session
-- holds a table under ACCESS EXCLUSIVE, and QU042.
create or replace function headrace.ids_behind() returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    highest bigint;
begin
    lock table headrace.events, headrace.events_carried, headrace.leases, headrace.outcomes, headrace.horizons,
        headrace.namespaces, headrace.marks, headrace.shard in access share mode nowait;
    perform headrace._check_shard();
    highest := headrace._highest_id();
    return case when highest > headrace._last_drawn_id() then highest end;
end $$;
