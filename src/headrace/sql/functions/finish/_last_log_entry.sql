-- The last entry in the log of a delivery, but for the claim that it may be in: its action and
-- attempt, and the worker and the token of that claim. Null: there is none.
create or replace function headrace._last_log_entry(
    q headrace.queues, event bigint, out action text, out attempt int, out worker text, out token text,
    out picked_at timestamptz
)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    since constant timestamptz := headrace._earliest_time_of(array[_last_log_entry.event]);
begin
    select o.action, o.attempts[array_position(o.events, _last_log_entry.event)], o.worker, o.token::text, o.picked_at
    into _last_log_entry.action, _last_log_entry.attempt, _last_log_entry.worker, _last_log_entry.token,
        _last_log_entry.picked_at
    from headrace.outcomes o
    where o.bucket = headrace._bucket(_last_log_entry.event) and o.queue = q.id
      and (since = '-infinity' or o.at >= since)
      and _last_log_entry.event = any (o.events)
    -- not by the index: with old statistics the whole month would be read for one row
    order by o.id + 0 desc limit 1;
end $$;
