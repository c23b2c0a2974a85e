-- Why the deliveries of an event are not running, or what became of them: for each delivery the
-- reasons that hold at this moment, the one that counts first before the others. queue null: in all
-- queues of the namespace.
--     code      for programs; message: the same for people; about: its numbers and names, by code
--     since     when it began; until: when it ends; null: not known. In the past: tick is about to end
--               it
-- The codes, with the contents of about:
--     ended              it is over (status, at, by; superseded_by; of a dead letter reason and error)
--     in_progress        a worker has it (worker, node, attempt), until its lease ends
--     lease_expired      a worker had it when its lease ended (worker, attempt): tick hands it out again
--     retry              it has failed, and waits for its retry (failures, max_retries, error)
--     snoozed            its handler snoozed it
--     released           it was handed back unfinished, and waits a little
--     delayed            it was published with a delay, or redriven at a rate
--     queue_paused, queue_draining   (actor); a draining queue hands out what it has
--     limited            a limit of the queue is full (scope, name; at_once, in_progress, held_by: the
--                        events that have its slots; rate, per, next_at)
--     key_in_progress    an earlier event of its ordering key is in progress, or waits for its retry
--                        (key, event, worker, retry_at)
--     key_turn           another event of its ordering key goes first (key, event, ahead)
--     suspect            a worker died while it had it (worker): it is claimed alone
--     unhandled          no live node handles its type (type; node, the last that did, until when)
--     in_line            nothing keeps it but those before it (ahead, ahead_is_exact, in_progress,
--                        per_second, seconds: at the rate of the last five minutes)
--     not_delivered      the queue did not get it (cause: filling, switched_off, filter, earlier)
--     no_queue           no queue of the namespace got it (queues: their number)
--     expired            it was published before the oldest month that is stored (stored_since)
-- One snapshot: all of it is true of the same moment. Cost: some look-ups per queue, and for in_line
-- up to 10,000 waiting rows.
-- Raises QU010, QU011, QU012.
create or replace function headrace.why(
    namespace text, event_id bigint, inout queue text default null,
    out code text, out message text, out since timestamptz, out until timestamptz, out about jsonb
) returns setof record
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    t constant timestamptz := headrace._now();
begin
    perform headrace._queue_named(why.namespace, coalesce(why.queue, 'main'));
    return query
    select q.name::text, r.code, r.message, r.since, r.until, r.about
    from headrace.queues q
    cross join lateral headrace._event_states(q, array[why.event_id]) s
    cross join lateral headrace._why_delivery(q, s, t) with ordinality
        as r(code, message, since, until, about, n)
    where q.space = why.namespace and (why.queue is null and s.status is not null or q.name = why.queue)
    order by q.id, r.n;
    if found then
        return;
    end if;
    return query
    select null::text, r.code, r.message, r.since, r.until, r.about
    from headrace._why_nowhere(why.namespace, why.event_id) r;
    if not found then
        raise exception using errcode = 'QU012', message = format('there is no event %s in the namespace %L',
                                                                  why.event_id, why.namespace);
    end if;
end $$;
