-- The max_retries that the last failure of a delivery was judged by; null: it has not failed. since: its event was published then.
create or replace function headrace.last_policy(event bigint, queue int, since timestamptz) returns smallint
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_variable
begin
    return (select x.max_retries from headrace.errors x where x.event = event and x.queue = queue and x.at >= since
            order by x.outcome desc limit 1);
end $$;
