-- Logs that work on a delivery has begun: STARTED, once for an attempt. attempt null: the claim
-- that the worker holds. A named worker must be the holder, a named lease token the claim's.
-- Returns the time of the first start.
-- Concurrency: waits for an end of the same delivery that is in progress; after that end there is
-- nothing to start.
-- Raises QU001 without a token, where the queue requires one, QU010, QU011, and QU020 when it is
-- not the current attempt.
create or replace function headrace.start(
    namespace text, event bigint, attempt int default null, worker text default null, queue text default 'main',
    lease_token text default null
) returns timestamptz
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    t timestamptz;
    q headrace.queues := headrace._queue_named(start.namespace, start.queue);
    named constant int := (headrace._proven_attempts(
        q, array[start.event], headrace._attempts_by_worker(q, array[start.event], array[start.attempt],
                                                            array[start.worker]), null,
        array[start.worker], array[start.lease_token]))[1];
    claim headrace.leases;
    began timestamptz;
    since constant timestamptz := headrace._earliest_time_of(array[start.event]);
    xid xid8 := pg_current_xact_id();  -- before an id is drawn: see publish
begin
    -- The lock keeps other sessions from logging the same start, and ends from coming in between.
    select h.lease into claim.id from headrace.held h
    where h.queue = q.id and h.event = start.event and h.attempt = named
    for update;
    if found then
        select l.* into claim from headrace.leases l where l.id = claim.id;
    else
        select l.* into claim from headrace.leases l
        where l.id = (headrace._leases_of(q, '{}', array[start.event], array[named], null))[1]
          and coalesce(get_bit(l.done, array_position(l.events, start.event) - 1), 0) = 0
        for update;
    end if;
    if not found then
        raise exception using errcode = 'QU020',
            message = 'the lease is lost: this attempt is not the current one, and nothing was changed';
    end if;
    select o.at into began from headrace.outcomes o
    where o.bucket = headrace._bucket(start.event) and o.queue = q.id and o.action = 'STARTED'
      and (since = '-infinity' or o.at >= since)
      and o.events = array[start.event] and o.attempts = array[named];
    if found then
        return began;
    end if;
    t := headrace._log_time(headrace._now(), claim.picked_at);
    insert into headrace.outcomes (id, at, bucket, namespace, queue, action, worker, events, attempts)
    values (nextval('headrace.ids'), t, headrace._bucket(start.event), q.namespace, q.id, 'STARTED', claim.worker,
            array[start.event], array[named]);
    return t;
end $$;
