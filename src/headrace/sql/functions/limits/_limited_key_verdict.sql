-- Whether the rate of an ordering key lets its next delivery start; null: it does, or there is
-- none. The start is taken at the end of the claim: see _take_slots. Else the verdict of
-- _claim_key:
--     dropped    it does not yet: the key waits in limit_keys, and needs no token until it is due
--     kept       another claim has the group locked
-- Concurrency: skips a locked group; waits a millisecond at most for a claim that makes the same
-- one.
create or replace function headrace._limited_key_verdict(q headrace.queues, pair headrace.hint, key text) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    t constant timestamptz := headrace._now();
    its headrace.membership;
    locked record;
begin
    select 1, 'key', _limited_key_verdict.key, l.rate, l.per * 1000000, coalesce(l.burst, 0)
    into its.n, its.scope, its.name, its.rate, its.per, its.burst
    from jsonb_to_recordset(q.limits) as l(scope text, rate int, per numeric, burst int) where l.scope = 'key';
    if not found then
        return null;
    elsif exists (select from headrace.limit_keys k where k.queue = q.id and k.key = _limited_key_verdict.key) then
        return 'dropped';
    end if;
    locked := headrace._lock_limit_groups(q, array[its], t);
    if locked.is_busy then
        return 'kept';
    elsif locked.rooms[1] > 0 then
        return null;
    end if;
    insert into headrace.limit_keys (queue, key, due_at, since, suspect, priority, route)
    values (q.id, _limited_key_verdict.key, locked.look_at, t, pair.suspect, pair.priority, pair.route)
    on conflict do nothing;
    return 'dropped';
end $$;
