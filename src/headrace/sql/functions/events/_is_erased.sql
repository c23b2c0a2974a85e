-- Whether an event was erased: see erase. Not a function that is inlined: as a part of a larger plan
-- it would open every month, see _plan_by_month.
create or replace function headrace._is_erased(event bigint) returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_variable
declare
    since constant timestamptz := headrace._earliest_time_of(array[event]);
begin
    return exists (
        select from headrace.outcomes o
        where o.bucket = headrace._bucket(event) and o.queue = 0 and o.action = 'ERASED' and event = any (o.events)
          and (since = '-infinity' or o.at >= since));
end $$;
