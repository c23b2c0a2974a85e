-- Ends attempts: item i says that the delivery of events[i], claimed as attempts[i], is over. It is completed,
-- unless others[i] (an object keyed by i, "1" being the first) says otherwise:
--     {"action": "fail", "error": …}        a failure: retried by the policy, dead-lettered when used up.
--                                           retry_in: seconds, instead of the policy; max_retries, backoff: the handler's
--                                           policy, where the event has none; reason: dead-letter it now, and why; last_reason: why, if
--                                           this failure uses up the policy ("Max retries exceeded");
--                                           status: FAILED, or COMPLETED_WITH_ERRORS, once it is dead
--     {"action": "release"}                 handed back unfinished: ready again, nothing charged. At once the first time; each
--                                           further release in a row comes back later: see release_delays
--     {"action": "abandon", "error": …}     the connection to PostgreSQL was lost under its handler: as if its lease had run out, so
--                                           the first time only makes a suspect. max_retries, last_reason: as in fail
-- and all of them may have a `progress`, for the next attempt: see save_progress.
-- leases[i] is the lease that poll returned; null will do for a delivery that is held, and is slower for a batch's.
-- lease_tokens: those that poll returned, one for each item or one for all; null where not known. An item whose token does not fit is lost.
-- ms and codes: how long each took, what it returned; null where not known.
--
-- Returns a row for each item that is not plainly completed: a verdict and what is stored.
--     counted    this call ended the attempt            repeated   it had ended this way before: the same answer
--     conflict   it had ended in another way: that stays lost      the attempt is not the current one: nothing changed
--
-- Concurrency: one end per attempt, whoever races. A held delivery's finish locks only its own row and works at
-- any isolation level inside the caller's transaction (there a missing row is "lost", or PostgreSQL raises
-- 40001, which means the same). A batch's finish locks its lease until the commit: keep it out of long transactions.
-- Raises QU001 (also for an item without a token, where the queue requires one), QU002, QU003, QU010, QU011.
create or replace function headrace.finish(
    namespace text,
    queue text,
    events bigint[],
    attempts int[],
    leases bigint[] default null,
    ms int[] default null,
    codes int[] default null,
    others jsonb default null,
    lease_tokens text[] default null
) returns setof headrace.verdict
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    t timestamptz := headrace.now();
    q headrace.queues;
    whole headrace.leases;
    taken headrace.taken[] := '{}';
    one headrace.taken;
    proofs text[];      -- the tokens, one for each item
    is_one constant boolean := others is null and cardinality(finish.events) = 1 and cardinality(finish.attempts) = 1
        and leases[1] is null and coalesce(cardinality(finish.ms), 1) = 1 and coalesce(cardinality(finish.codes), 1) = 1;
    xid xid8 := pg_current_xact_id();  -- before an id is drawn: see publish
begin
    if is_one and headrace.complete_held(
        finish.namespace, finish.queue, finish.events[1], finish.attempts[1], finish.ms[1], finish.codes[1], lease_tokens[1]) then
        return;
    end if;
    select * into q from headrace.queues where queues.space = finish.namespace and queues.name = finish.queue
      and (not queues.bound or headrace.admits(queues.space));
    if not found then
        perform headrace.no_such_queue(finish.namespace, finish.queue);
    end if;
    if finish.events is null or cardinality(finish.events) is distinct from cardinality(finish.attempts)
       or cardinality(coalesce(leases, finish.events)) <> cardinality(finish.events)
       or cardinality(coalesce(finish.ms, finish.attempts)) <> cardinality(finish.events)
       or cardinality(coalesce(codes, finish.attempts)) <> cardinality(finish.events)
       or cardinality(lease_tokens) not in (1, cardinality(finish.events)) then
        raise exception using errcode = 'QU001', message = 'events, attempts, leases, ms, codes and lease_tokens are arrays of one length';
    end if;
    if others is not null then
        perform headrace.refuse(headrace.others_problem(others, cardinality(finish.events)), 0);
    end if;

    -- The common case, a whole batch completed as it was claimed, needs no look at its members.
    if others is null and leases[1] = all (leases) then
        select l.* into whole from headrace.leases l
        where l.id = leases[1] and l.queue = q.id and l.size = cardinality(finish.events) and l.events is not null for update;
        if whole.events = finish.events and whole.done is null
           and coalesce(whole.attempts = finish.attempts, 1 = all (finish.attempts))
           and coalesce(whole.token::text = all (lease_tokens), not q.require_lease_token) then
            delete from headrace.leases l where l.id = whole.id;
            perform headrace.record(q, t, whole.id, whole.picked_at, whole.worker,
                                    finish.events, finish.attempts, null, finish.ms, finish.codes);
            return;
        end if;
    end if;

    if q.require_lease_token then
        perform headrace.proved(q, finish.events, finish.attempts, leases, null, lease_tokens);
        proofs := headrace.demanded(lease_tokens, cardinality(finish.events));
    elsif cardinality(lease_tokens) < cardinality(finish.events) then
        proofs := array_fill(lease_tokens[1], array[cardinality(finish.events)]);
    else
        proofs := lease_tokens;
    end if;
    if array_remove(leases, null) <> '{}' then
        taken := headrace.take_batched(q, finish.events, finish.attempts, leases, proofs);
    end if;
    if cardinality(taken) < cardinality(finish.events) then
        taken := taken || headrace.take_held(q, finish.events, finish.attempts, proofs);
    end if;
    if cardinality(taken) < cardinality(finish.events) and (leases is null or array_position(leases, null) is not null) then
        taken := taken || headrace.take_batched(
            q, finish.events, finish.attempts, headrace.locate(q, taken, finish.events, finish.attempts, leases), proofs);
    end if;

    if others is null and cardinality(taken) = 1 then
        one := taken[1];
        perform headrace.record(q, t, one.lease, one.picked_at, one.worker, array[one.event], array[one.attempt],
                                array[one.position], array[finish.ms[one.item]], array[finish.codes[one.item]]);
        if one.key is not null then
            perform headrace.pass_on(q, t, taken);
        end if;
    elsif cardinality(taken) > 0 then
        return query select * from headrace.settle(q, t, 'complete', taken, finish.ms, codes, others);
    end if;
    if cardinality(taken) < cardinality(finish.events) then
        return query select * from headrace.judge(q, taken, finish.events, finish.attempts, others);
    end if;
end $$;
