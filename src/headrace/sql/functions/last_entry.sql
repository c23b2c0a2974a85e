-- The last entry in the log of a delivery, but for the claim that it may be in: its action and attempt, whose claim that was and with which
-- token. Null: there is none.
create or replace function headrace.last_entry(
    q headrace.queues, event bigint, out action text, out attempt int, out worker text, out token text, out picked_at timestamptz
)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    since constant timestamptz := headrace.happened_since(array[last_entry.event]);
begin
    select o.action, o.attempts[array_position(o.events, last_entry.event)], o.worker, o.token::text, o.picked_at
    into last_entry.action, last_entry.attempt, last_entry.worker, last_entry.token, last_entry.picked_at
    from headrace.outcomes o
    where o.bucket = last_entry.event >> 10 and o.queue = q.id and (since = '-infinity' or o.at >= since) and last_entry.event = any (o.events)
    order by o.id + 0 desc limit 1;     -- not by the index: with old statistics the whole month would be read for one row
end $$;
