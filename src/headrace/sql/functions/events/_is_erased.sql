-- Whether an event was erased: see erase.
create or replace function headrace._is_erased(event bigint) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select exists (
        select from headrace.outcomes o
        where o.bucket = headrace._bucket(event) and o.queue = 0 and o.action = 'ERASED' and event = any (o.events))
$$;
