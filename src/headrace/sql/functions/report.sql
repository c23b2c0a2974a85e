-- Ends attempts as finish does, for callers who know an event and perhaps no more than their own name: item i is the
-- delivery of events[i], claimed as attempts[i], or, where that is null, by workers[i]: the claim it holds now, else
-- the last one it held. A worker that is named must be the holder, and a lease token that is named the claim's: else
-- the item is lost. ms, codes and others as in finish.
-- Returns a verdict for every item, those that are plainly completed too, with the time that is in the log.
--
-- Concurrency: as finish. What is named twice is ended once, and the second is told what the first did.
-- Raises QU001, QU010, QU011.
create or replace function headrace.report(
    namespace text,
    queue text,
    events bigint[],
    attempts int[],
    workers text[],
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
    q headrace.queues := headrace.its_queue(report.namespace, report.queue);
    size constant int := cardinality(report.events);
    taken headrace.taken[];
    one headrace.taken;
    proofs text[];
    xid xid8 := pg_current_xact_id();  -- before an id is drawn: see publish
begin
    if report.events is null or cardinality(report.attempts) is distinct from size or cardinality(workers) is distinct from size
       or cardinality(coalesce(report.ms, report.attempts)) <> size or cardinality(coalesce(codes, report.attempts)) <> size
       or cardinality(lease_tokens) not in (1, size) then
        raise exception using errcode = 'QU001', message = 'events, attempts, workers, ms, codes and lease_tokens are arrays of one length';
    end if;
    if others is not null then
        perform headrace.refuse(headrace.others_problem(others, size), 0);
    end if;
    if array_position(report.attempts, null) is not null then
        report.attempts := headrace.meant(q, report.events, report.attempts, workers);
    end if;
    if array_remove(workers, null) <> '{}' or array_remove(lease_tokens, null) <> '{}' or q.require_lease_token then
        report.attempts := headrace.proved(q, report.events, report.attempts, null, workers, lease_tokens);
    end if;
    if q.require_lease_token then
        proofs := headrace.demanded(lease_tokens, size);
    elsif cardinality(lease_tokens) < size then
        proofs := array_fill(lease_tokens[1], array[size]);
    else
        proofs := lease_tokens;
    end if;
    taken := headrace.take_held(q, report.events, report.attempts, proofs);
    if cardinality(taken) < size then
        taken := taken || headrace.take_batched(
            q, report.events, report.attempts, headrace.locate(q, taken, report.events, report.attempts, null), proofs);
    end if;

    if others is null and cardinality(taken) = 1 then
        one := taken[1];
        perform headrace.record(q, t, one.lease, one.picked_at, one.worker, array[one.event], array[one.attempt],
                                array[one.position], array[report.ms[one.item]], array[codes[one.item]]);
        perform headrace.pass_on(q, t, taken);
    elsif cardinality(taken) > 0 then
        return query select * from headrace.settle(q, t, 'complete', taken, report.ms, codes, others);
    end if;
    return query
    select k.item, 'counted', 'COMPLETED', t, null::timestamptz, null::smallint, null::smallint
    from unnest(taken) k
    where coalesce(others -> k.item::text ->> 'action', 'complete') = 'complete';
    if cardinality(taken) < size then
        return query select * from headrace.judge(q, taken, report.events, report.attempts, others, workers);
    end if;
end $$;
