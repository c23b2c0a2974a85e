-- The highest number of headrace.ids that tables hold in an index; null: none. Those that they hold
-- beside them, seq in ready for one, are rarely higher: see repair_ids.
create or replace function headrace._highest_id() returns bigint
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
    select greatest(
        (select max(e.id) from headrace.events e), (select max(c.id) from headrace.events_carried c),
        (select max(l.id) from headrace.leases l), (select max(o.id) from headrace.outcomes o),
        (select max(h.pending) from headrace.horizons h), (select max(n.floor) from headrace.namespaces n),
        (select max(m.id) from headrace.marks m), (select s.mark from headrace.shard s))
$$;
