-- Claims a delivery for each of several workers that ask at the same moment, as if each had called
-- poll with max_events 1 and each: every worker has a lease and a lease token of its own. Returns a
-- row for each worker that gets one; place is that of the worker, from 1. The first workers get the
-- first deliveries. If others wait for a rate, a last row without a place tells after how many seconds
-- the first of them may start: look_in.
-- Concurrency: as poll. All claims are committed together.
-- Raises what poll raises.
create or replace function headrace.poll_for(
    namespace text,
    queue text,
    workers text[],
    types text[] default null,
    tags text[] default null,
    all_tags boolean default false,
    lease interval default null,
    hints text default null,
    sweep boolean default false
) returns setof headrace.claimed_for
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off     -- rows are found in the order of an index, never collected and sorted
set enable_sort = off
set enable_nestloop = off       -- the bodies are joined by a hash: a nested loop takes three times as long
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    q headrace.queues := headrace._queue_named(poll_for.namespace, poll_for.queue);
    size constant int := cardinality(workers);
    served int := 0;
    told int;
    lot headrace.lot;
    shares headrace.share[];
    nothing headrace.claimed_for;
begin
    if size is null or size not between 1 and 1000 or array_position(workers, null) is not null
       or exists (select from unnest(workers) w where length(w) > 200) then
        raise exception using errcode = 'QU001', message = 'workers are 1 to 1000 names of at most 200 characters';
    end if;
    -- A claim may have less than it asked for though there is more: a suspect comes alone, and a
    -- queue has a batch size. A claim of a limited queue takes slots for one lease.
    while served < size loop
        lot := headrace._claim(
            poll_for.namespace, poll_for.queue, types, tags, all_tags, workers[served + 1],
            case when q.limits is null then size - served else 1 end, poll_for.lease, true, true,
            poll_for.hints, sweep, null, 'atomic');
        if lot.lease is null then
            if lot.look_in is not null then
                nothing.look_in := lot.look_in;
                return next nothing;
            end if;
            return;
        end if;
        poll_for.hints := lot.hints;
        shares := headrace._share_claim(q, lot, workers, served);
        return query
        select s.place, array[b.id], json_build_array(b.payload)::text,
               case when b.details is not null then json_build_array(b.details)::text end,
               b.type, b.tags, b.attempt, b.priority, b.retry_count, b.crashes, b.max_retries,
               timestamptz_send(b.created_at), s.lease, b.held, b.lease_expires_at, s.token,
               b.processing_started_at, lot.hints, null::float8
        from headrace._claimed_events(lot) b join unnest(shares) s on s.event = b.id;
        get diagnostics told = row_count;
        if told < cardinality(lot.events) then
            perform headrace._dead_letter_missing_events(s.lease) from unnest(shares) s;
        end if;
        served := served + cardinality(lot.events);
    end loop;
end $$;
