-- Removes expired idempotency keys, the oldest first, at most `most`; returns whether there may be
-- more of them.
-- Concurrency: skips locked rows.
create or replace function headrace._forget_keys(most int) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    kept timestamptz := headrace._retained_since('idempotency_retention', headrace._retention_clock());
    forgotten int;
begin
    with outdated as materialized (
        select i.ctid from headrace.idempotency i
        where i.created_at < kept
        order by i.created_at limit most
        for update skip locked
    )
    delete from headrace.idempotency i where i.ctid = any (array(select o.ctid from outdated o));
    get diagnostics forgotten = row_count;
    return forgotten = most;
end $$;
