-- The limits of the queue that keep a waiting delivery from being claimed, each with the deliveries
-- that fill it: see why. No queue has limits yet.
create or replace function headrace._why_limited(q headrace.queues, s headrace.shown, t timestamptz)
returns setof headrace.reason
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select null::headrace.reason where false $$;
