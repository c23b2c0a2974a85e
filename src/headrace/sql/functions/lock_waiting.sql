-- Locks a delivery that waits after an attempt, wherever it does; null: none waits after this attempt. The row has no item yet.
-- Concurrency: waits for a claim that is just taking it, and then does not find it. In the order of take_waiting: what is due moves
-- out of `delayed`, never back into it.
create or replace function headrace.lock_waiting(q headrace.queues, event bigint, attempt int) returns headrace.taken
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    waiting headrace.taken;
begin
    select null, d.event, d.attempts, d.created_at, d.failures, d.crashes, d.suspect, null, null, null, null, d.key into waiting
    from headrace.delayed d
    where d.queue = q.id and d.event = lock_waiting.event and d.attempts = lock_waiting.attempt
    for update;
    if found then
        return waiting;
    end if;
    select null, k.event, k.attempts, k.created_at, k.failures, k.crashes, k.suspect, null, null, null, null, k.key into waiting
    from headrace.keyed k
    where k.queue = q.id and k.event = lock_waiting.event and k.attempts = lock_waiting.attempt
    for update;
    if found then
        return waiting;
    end if;
    select null, r.event, r.attempts, r.created_at, r.failures, r.crashes, r.suspect, null, null, null, null, null into waiting
    from headrace.ready r
    where r.queue = q.id and r.event = lock_waiting.event and r.seq <> r.event and r.key is null and r.attempts = lock_waiting.attempt
    for update;
    return case when found then waiting end;
end $$;
