-- The max_retries that applied to the last failure of a delivery; null: it has not failed. since:
-- the time at which its event was published.
create or replace function headrace._last_max_retries(event bigint, queue int, since timestamptz) returns smallint
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_variable
begin
    return (select x.max_retries from headrace.errors x where x.event = event and x.queue = queue and x.at >= since
            order by x.outcome desc limit 1);
end $$;
