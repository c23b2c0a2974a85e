-- Takes one delivery out of where it stands. PROCESSING: out of the claim in which it is this attempt; DELAYED: out of its
-- delay; PENDING: out of wherever it waits. Nothing: it is not there any more. A claim that is left empty is ended, so that
-- the next heartbeat tells its worker.
-- Concurrency: waits half a second for whoever has it locked, a handler's open transaction most likely; then raises QU023.
create or replace function headrace.take(q headrace.queues, event bigint, standing text, attempt int) returns headrace.taken[]
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
        return headrace.take_waiting(q, array[take.event]);
    elsif standing = 'DELAYED' then
        with gone as (delete from headrace.delayed d where d.event = take.event and d.queue = q.id returning d.*)
        select coalesce(array_agg(row(1, d.event, d.attempts, d.created_at, d.failures, d.crashes, d.suspect,
                                      null, null, null, null, d.key)::headrace.taken), '{}')
        into taken from gone d;
        return taken;
    end if;
    taken := headrace.take_held(q, array[take.event], array[take.attempt]);
    if taken = '{}' then
        return headrace.take_batched(q, array[take.event], array[take.attempt],
                                     headrace.locate(q, '{}', array[take.event], array[take.attempt], array[null::bigint]));
    end if;
    delete from headrace.leases l where l.id = (
        select e.id from headrace.leases e
        where e.id = taken[1].lease and not exists (select from headrace.held h where h.lease = e.id)
        for update skip locked);
    return taken;
exception when lock_not_available then
    perform headrace.on_the_move(take.event);
end $$;
