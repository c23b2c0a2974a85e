-- Takes one delivery out of its place. PROCESSING: out of the claim in which it is this attempt;
-- DELAYED: out of its delay; PENDING: out of any place in which it waits. Nothing: it is not there
-- any more. A claim that is left empty is ended, so that the next heartbeat tells its worker.
-- Concurrency: waits half a second for the session that has it locked, a handler's open transaction
-- most likely; then raises QU023.
create or replace function headrace._take_one(
    q headrace.queues, event bigint, standing text, attempt int
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
    if taken = '{}' then
        return headrace._take_batched(q, array[_take_one.event], array[_take_one.attempt],
                                     headrace._leases_of(q, '{}', array[_take_one.event], array[_take_one.attempt],
                                                         array[null::bigint]));
    end if;
    delete from headrace.leases l where l.id = (
        select e.id from headrace.leases e
        where e.id = taken[1].lease and not exists (select from headrace.held h where h.lease = e.id)
        for update skip locked);
    return taken;
exception when lock_not_available then
    perform headrace._raise_busy(_take_one.event);
end $$;
