-- Imports the next events of a file, an array as export_events returned it: see import_state. It
-- delivers to no other queue. An event that is here already, by an import through another queue, or
-- because it is from here, is not stored again: the queue gets its delivery of it. Deliveries that
-- were in progress, or whose delay is over, are ready. Order, counters and dead letters stay.
-- Raises QU001, QU002, QU003 (with the event's place in the array as detail), 22P02 … for values
-- that cannot be read.
create or replace function headrace._import_events(
    o headrace.open_imports, q headrace.queues, events jsonb
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_column
declare
    t constant timestamptz := headrace._now();
    arrived headrace.arrival[];
    xid constant xid8 := pg_current_xact_id();
begin
    arrived := headrace._checked_arrivals(o, q, events, t);
    perform headrace._store_arrivals(o, q, arrived);
    perform headrace._deliver_arrivals(q, arrived, t);
    insert into headrace.imported (origin, event, namespace, queue, created_at, id)
    select o.origin, a.old_id, q.namespace, q.id, a.created_at, a.id from unnest(arrived) a where not a.was_here;
    update headrace.open_imports i set
        events = i.events + jsonb_array_length(_import_events.events),
        stored = i.stored + n.stored, ready = i.ready + n.ready, delayed = i.delayed + n.delayed,
        dead = i.dead + n.dead,
        highest = greatest(i.highest, n.highest), oldest_at = least(i.oldest_at, n.oldest_at)
    from (
        select count(*) filter (where not a.is_stored) as stored,
               count(*) filter (where not a.was_here and a.place = 'ready') as ready,
               count(*) filter (where not a.was_here and a.place = 'delayed') as delayed,
               count(*) filter (where not a.was_here and a.place = 'dead') as dead,
               max(a.id) filter (where not a.is_stored) as highest,
               min(a.created_at) filter (where not a.is_stored) as oldest_at
        from unnest(arrived) a
    ) n
    where i.id = o.id;
end $$;
