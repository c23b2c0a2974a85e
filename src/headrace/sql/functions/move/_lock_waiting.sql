-- Locks a delivery that waits after an attempt, in any place; null: none waits after this attempt.
-- The row has no item yet.
-- Concurrency: waits for a claim that is taking the delivery now, and then does not find it. In the
-- order of _take_waiting: a due delivery moves out of `delayed`, never back into it.
create or replace function headrace._lock_waiting(q headrace.queues, event bigint, attempt int) returns headrace.taken
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    waiting headrace.taken;
begin
    select d.event, d.attempts, d.created_at, d.failures, d.crashes, d.suspect, d.key
    into waiting.event, waiting.attempt, waiting.created_at, waiting.failures, waiting.crashes, waiting.suspect,
        waiting.key
    from headrace.delayed d
    where d.queue = q.id and d.event = _lock_waiting.event and d.attempts = _lock_waiting.attempt
    for update;
    if found then
        return waiting;
    end if;
    select k.event, k.attempts, k.created_at, k.failures, k.crashes, k.suspect, k.key
    into waiting.event, waiting.attempt, waiting.created_at, waiting.failures, waiting.crashes, waiting.suspect,
        waiting.key
    from headrace.keyed k
    where k.queue = q.id and k.event = _lock_waiting.event and k.attempts = _lock_waiting.attempt
    for update;
    if found then
        return waiting;
    end if;
    select r.event, r.attempts, r.created_at, r.failures, r.crashes, r.suspect
    into waiting.event, waiting.attempt, waiting.created_at, waiting.failures, waiting.crashes, waiting.suspect
    from headrace.ready r
    where r.queue = q.id and r.event = _lock_waiting.event and r.seq <> r.event and r.key is null
      and r.attempts = _lock_waiting.attempt
    for update;
    return case when found then waiting end;
end $$;
