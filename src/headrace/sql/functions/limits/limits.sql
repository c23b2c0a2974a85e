-- The groups of a queue that have a limit and something in progress or waiting for it: full groups
-- first, those that have waited longest first of all; at most 100.
--     scope, name        queue and '', type, tag or key and its name: see change_queue
--     at_once, in_progress      the most that may be in progress, and how many are
--     rate, per, burst   so many starts in so many seconds
--     room               how many may start now
--     next_at            when the rate lets the next start; null: now, or when one of them ends
--     waiting, waiting_since    the ready deliveries of a full group, counted up to about 1,000 for
--                               each of its types and tags, and since when the first has been ready
-- Reads at most 1,000 pairs of priority and route that have work. Changes nothing.
-- Raises QU010, QU011.
create or replace function headrace.limits(
    namespace text, queue text default 'main'
) returns table (
    scope text, name text, at_once int, in_progress int, rate int, per float8, burst int, room int,
    next_at timestamptz, waiting bigint, waiting_since timestamptz
)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    q constant headrace.queues := headrace._queue_named(limits.namespace, limits.queue);
begin
    return query
    select s.scope, s.name, s.at_once, s.in_progress, s.rate, s.per, s.burst, s.room, s.next_at, s.waiting,
           s.waiting_since
    from headrace._limit_states(q, headrace._now()) s
    where s.in_progress > 0 or s.waiting > 0
    order by (s.room = 0 and s.waiting > 0) desc, s.waiting_since, s.scope, s.name
    limit 100;
end $$;
