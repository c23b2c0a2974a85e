-- Takes one delivery out of its place. PROCESSING: out of the claim in which it is this attempt;
-- DELAYED: out of its delay; PENDING: out of any place in which it waits. Nothing: it is not there
-- any more. A claim that is left empty is ended. action: CANCELLED, RESET or ERASED, if the worker
-- of a claim is to be told that it was interrupted: see _interrupt; null: it is not.
-- Concurrency: waits half a second for the session that has it locked, a handler's open transaction
-- most likely; then raises QU023.
create or replace function headrace._take_one(
    q headrace.queues, event bigint, standing text, attempt int, action text default null
) returns headrace.taken[]
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '500ms'
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    taken headrace.taken[];
    claim bigint;
    holder uuid;
begin
    if standing = 'PENDING' then
        return headrace._take_waiting(q, array[_take_one.event]);
    elsif standing = 'DELAYED' then
        with gone as (delete from headrace.delayed d where d.event = _take_one.event and d.queue = q.id returning d.*)
        select coalesce(array_agg(headrace._taken_delivery(
            d.event, d.attempts, d.created_at, d.failures, d.crashes, d.suspect, d.key, item => 1)), '{}')
        into taken from gone d;
        return taken;
    end if;
    taken := headrace._take_held(q, array[_take_one.event], array[_take_one.attempt]);
    claim := coalesce(taken[1].lease, (headrace._leases_of(
        q, '{}', array[_take_one.event], array[_take_one.attempt], array[null::bigint]))[1]);
    -- before the lease is gone
    select l.instance into holder from headrace.leases l where l.id = claim;
    if taken = '{}' then
        taken := headrace._take_batched(q, array[_take_one.event], array[_take_one.attempt], array[claim]);
    else
        delete from headrace.leases l where l.id = (
            select e.id from headrace.leases e
            where e.id = claim and not exists (select from headrace.held h where h.lease = e.id)
            for update skip locked);
    end if;
    if taken <> '{}' and _take_one.action is not null then
        perform headrace._interrupt(q.id, claim, holder, array[_take_one.event], _take_one.action);
    end if;
    return taken;
exception when lock_not_available then
    perform headrace._raise_busy(_take_one.event);
end $$;
