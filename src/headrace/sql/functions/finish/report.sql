-- Ends attempts as finish does, for callers that know an event and perhaps only their own name:
-- item i is the delivery of events[i], claimed as attempts[i], or, where that is null, by
-- workers[i]: the claim it holds now, else the last one it held. A named worker must be the holder,
-- and a named lease token the claim's: else the item is lost. ms, codes and others as in finish.
-- Returns a verdict for every item, those that are plainly completed too, with the time of the log
-- entry.
--
-- Concurrency: as finish. An item that is named twice is ended once, and the second gets the result
-- of the first.
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
    t timestamptz;     -- see finish
    later timestamptz;
    q headrace.queues := headrace._queue_named(report.namespace, report.queue);
    size constant int := cardinality(report.events);
    taken headrace.taken[];
    one headrace.taken;
    late headrace.taken[];
    proofs text[];
    xid xid8 := pg_current_xact_id();  -- before an id is drawn: see publish
begin
    if report.events is null or cardinality(report.attempts) is distinct from size
       or cardinality(workers) is distinct from size
       or cardinality(coalesce(report.ms, report.attempts)) <> size
       or cardinality(coalesce(codes, report.attempts)) <> size
       or cardinality(lease_tokens) not in (1, size) then
        raise exception using errcode = 'QU001',
            message = 'events, attempts, workers, ms, codes and lease_tokens are arrays of one length';
    end if;
    if others is not null then
        perform headrace._raise_problem(headrace._results_problem(others, size), 0);
    end if;
    if array_position(report.attempts, null) is not null then
        report.attempts := headrace._attempts_by_worker(q, report.events, report.attempts, workers);
    end if;
    if array_remove(workers, null) <> '{}' or array_remove(lease_tokens, null) <> '{}' or q.require_lease_token then
        report.attempts := headrace._proven_attempts(q, report.events, report.attempts, null, workers, lease_tokens);
    end if;
    proofs := headrace._item_tokens(q, lease_tokens, size);
    if others is not null then
        others := headrace._labelled_results(q, report.events, report.attempts, null, others);
    end if;
    taken := headrace._take_held(q, report.events, report.attempts, proofs);
    if cardinality(taken) < size then
        taken := taken || headrace._take_batched(
            q, report.events, report.attempts, headrace._leases_of(q, taken, report.events, report.attempts, null),
            proofs);
    end if;

    t := headrace._now();
    if others is null and cardinality(taken) = 1 then
        one := taken[1];
        perform headrace._record_completed(
            q, t, one.lease, one.picked_at, one.worker, array[one.event], array[one.attempt], array[one.position],
            array[report.ms[one.item]], array[codes[one.item]]);
        perform headrace._release_keys(q, t, taken);
    elsif cardinality(taken) > 0 then
        return query select * from headrace._settle(q, t, 'complete', taken, report.ms, codes, others);
    end if;
    if cardinality(taken) < size then
        late := headrace._take_late(q, t, taken, report.events, report.attempts, workers, lease_tokens, others);
        later := headrace._now();    -- not before the abandonment, for which it may have waited
        foreach one in array late loop
            return query select * from headrace._settle(q, later, 'complete', array[one], report.ms, codes, others);
        end loop;
        taken := taken || late;
    end if;
    return query
    select k.item, 'counted', 'COMPLETED',
           headrace._log_time(case when k.lease is null then later else t end, k.picked_at),
           null::timestamptz, null::smallint, null::smallint
    from unnest(taken) k
    where coalesce(others -> k.item::text ->> 'action', 'complete') = 'complete';
    if cardinality(taken) < size then
        return query select * from headrace._past_verdicts(q, taken, report.events, report.attempts, others, workers);
    end if;
end $$;
