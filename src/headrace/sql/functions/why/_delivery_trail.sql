-- The entries of the log of a delivery, but for claims, with the errors that belong to them. Not a
-- function that is inlined: as a part of a larger plan it would open every month, see
-- _plan_by_month. by: the actor, else the worker.
create or replace function headrace._delivery_trail(q headrace.queues, event bigint)
returns table (id bigint, action text, at timestamptz, by text, ends_claim boolean, reason text, error text)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    since constant timestamptz := headrace._earliest_time_of(array[_delivery_trail.event]);
begin
    return query
    select o.id, o.action, o.at, nullif(coalesce(o.actor, o.worker), ''), o.picked_at is not null, o.reason,
           (select nullif(r.error, '') from headrace.errors r
            where r.event = _delivery_trail.event and r.queue = q.id and r.outcome = o.id and r.at = o.at
              and (since = '-infinity' or r.at >= since))
    from headrace.outcomes o
    where o.bucket = _delivery_trail.event >> 10 and o.queue = q.id and _delivery_trail.event = any (o.events)
      and (since = '-infinity' or o.at >= since);
end $$;
