-- Ends attempts: item i says that the delivery of events[i], claimed as attempts[i], is over. It is
-- completed, unless others[i] (an object keyed by i, "1" being the first) says otherwise:
--     {"action": "fail", "error": …}        a failure: retried by the policy, dead-lettered when
--                                           used up.
--                                           retry_in: seconds, instead of the policy; max_retries,
--                                           backoff: the handler's policy, where the event has
--                                           none; reason: dead-letter it now, for this reason;
--                                           last_reason: the reason, if this failure uses up the
--                                           policy ("Max retries exceeded");
--                                           status: FAILED, or COMPLETED_WITH_ERRORS, once it is
--                                           dead; else that of its claim: see _labelled_results
--     {"action": "release"}                 handed back unfinished: ready again, nothing charged.
--                                           At once the first time; each further release in a row
--                                           comes back later: see _release_delays. delay:
--                                           seconds; a snooze: ready again after them, at the
--                                           earliest after 0.1, and SNOOZED in the log. A snooze
--                                           after max_snoozes of the queue is a failure
--     {"action": "abandon", "error": …}     the connection to PostgreSQL was lost under its
--                                           handler: as if its lease had expired, so the first time
--                                           only makes a suspect. max_retries, last_reason: as in
--                                           fail
-- and all of them may have a `progress`, for the next attempt: see save_progress.
-- leases[i] is the lease that poll returned; null works for a delivery that is held, and is slower
-- for one of a batch.
-- lease_tokens: those that poll returned, one for each item or one for all; null where not known.
-- An item with a wrong token is lost. ms and codes: the duration and the result code of each; null
-- where not known.
--
-- Returns a row for each item that is not plainly completed: a verdict and what is stored.
--     counted    this call ended the attempt
--     repeated   it had ended this way before: the same answer
--     conflict   it had ended in another way: that stays
--     lost       the attempt is not the current one: nothing changed
-- A complete or a fail that comes after the lease expired counts while no worker has had the
-- delivery since: see _take_late.
--
-- Concurrency: one end per attempt, under any race. A held delivery's finish locks only its own row
-- and works at any isolation level inside the caller's transaction (there a missing row is "lost",
-- or PostgreSQL raises 40001, which means the same). A batch's finish locks its lease until the
-- commit: keep it out of long transactions.
-- Raises QU001 (also for an item without a token, where the queue requires one), QU002, QU003,
-- QU010, QU011.
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
    t timestamptz;     -- read after the locks: the session that held them before has written a log entry
    q headrace.queues;
    whole headrace.leases;
    taken headrace.taken[] := '{}'; late headrace.taken[]; one headrace.taken;
    proofs text[];      -- the tokens, one for each item
    is_one constant boolean := others is null and cardinality(finish.events) = 1 and cardinality(finish.attempts) = 1
        and leases[1] is null and coalesce(cardinality(finish.ms), 1) = 1
        and coalesce(cardinality(finish.codes), 1) = 1;
    xid xid8 := pg_current_xact_id();  -- before an id is drawn: see publish
begin
    if is_one and headrace.complete_held(
        finish.namespace, finish.queue, finish.events[1], finish.attempts[1], finish.ms[1], finish.codes[1],
        lease_tokens[1]) then
        return;
    end if;
    select * into q from headrace.queues where queues.space = finish.namespace and queues.name = finish.queue
      and (not queues.bound or headrace._has_access(queues.space));
    if not found then
        perform headrace._raise_no_such_queue(finish.namespace, finish.queue);
    end if;
    if finish.events is null or cardinality(finish.events) is distinct from cardinality(finish.attempts)
       or cardinality(coalesce(leases, finish.events)) <> cardinality(finish.events)
       or cardinality(coalesce(finish.ms, finish.attempts)) <> cardinality(finish.events)
       or cardinality(coalesce(codes, finish.attempts)) <> cardinality(finish.events)
       or cardinality(lease_tokens) not in (1, cardinality(finish.events)) then
        raise exception using errcode = 'QU001',
            message = 'events, attempts, leases, ms, codes and lease_tokens are arrays of one length';
    end if;
    if others is not null then
        perform headrace._raise_problem(headrace._results_problem(others, cardinality(finish.events)), 0);
    end if;

    -- The common case, a whole batch completed as it was claimed, needs no look at its members.
    if others is null and leases[1] = all (leases) then
        select l.* into whole from headrace.leases l
        where l.id = leases[1] and l.queue = q.id and l.size = cardinality(finish.events)
          and l.events is not null for update;
        if whole.events = finish.events and whole.done is null
           and coalesce(whole.attempts = finish.attempts, 1 = all (finish.attempts))
           and coalesce(whole.token::text = all (lease_tokens), not q.require_lease_token) then
            delete from headrace.leases l where l.id = whole.id;
            perform headrace._record_completed(q, headrace._now(), whole.id, whole.picked_at, whole.worker,
                                               finish.events, finish.attempts, null, finish.ms, finish.codes);
            return;
        end if;
    end if;

    if q.require_lease_token then
        perform headrace._proven_attempts(q, finish.events, finish.attempts, leases, null, lease_tokens);
    end if;
    proofs := headrace._item_tokens(q, lease_tokens, cardinality(finish.events));
    if others is not null then
        others := headrace._labelled_results(q, finish.events, finish.attempts, leases, others);
    end if;
    if array_remove(leases, null) <> '{}' then
        taken := headrace._take_batched(q, finish.events, finish.attempts, leases, proofs);
    end if;
    if cardinality(taken) < cardinality(finish.events) then
        taken := taken || headrace._take_held(q, finish.events, finish.attempts, proofs);
    end if;
    if cardinality(taken) < cardinality(finish.events)
       and (leases is null or array_position(leases, null) is not null) then
        taken := taken || headrace._take_batched(
            q, finish.events, finish.attempts, headrace._leases_of(q, taken, finish.events, finish.attempts, leases),
            proofs);
    end if;

    t := headrace._now();
    if others is null and cardinality(taken) = 1 then
        one := taken[1];
        perform headrace._record_completed(
            q, t, one.lease, one.picked_at, one.worker, array[one.event], array[one.attempt], array[one.position],
            array[finish.ms[one.item]], array[finish.codes[one.item]]);
        if one.key is not null then
            perform headrace._release_keys(q, t, taken);
        end if;
    elsif cardinality(taken) > 0 then
        return query select * from headrace._settle(q, t, 'complete', taken, finish.ms, codes, others);
    end if;
    if cardinality(taken) < cardinality(finish.events) then
        late := headrace._take_late(q, t, taken, finish.events, finish.attempts, null, lease_tokens, others);
        t := headrace._now();    -- not before the abandonment, for which it may have waited
        foreach one in array late loop
            return query select * from headrace._settle(q, t, 'complete', array[one], finish.ms, codes, others);
        end loop;
        return query select * from headrace._past_verdicts(q, taken || late, finish.events, finish.attempts, others);
    end if;
end $$;
