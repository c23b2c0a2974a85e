-- Whether an event has an unfinished delivery in any queue of a namespace. One statement, so that it
-- sees a delivery on the move once.
create or replace function headrace._is_unfinished(home int, event bigint, created_at timestamptz) returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_variable
begin
    return exists (
        select from headrace.queues q
        cross join headrace._stored_event(event, created_at) b
        cross join lateral (
            select from headrace._waiting_delivery(event, q.id, b.route, b.priority)
            union all
            select from headrace.held h where h.queue = q.id and h.event = event
            union all
            select from headrace.leases l
            where l.queue = q.id and l.events is not null and event = any (l.events)
              and (l.done is null or get_bit(l.done, array_position(l.events, event) - 1) = 0)
        ) d
        where q.namespace = home);
end $$;
