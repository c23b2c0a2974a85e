-- Claims up to max_events deliveries for the length of a lease and returns them, the most urgent and oldest
-- first. Claimed means: committed to this worker, the attempt counted, before any of its code runs.
--
-- types: any may hold asterisks ("order.*"); tags: any of them, or all of them; null: everything.
-- each: every delivery is held on its own, for finishing inside a transaction of the worker's or one by one.
-- A suspect (see 0001_places) is returned alone, when its turn has come; suspects := false leaves them be.
-- hints: what the last call with the same filter returned, kept in the caller's memory. It names the
-- (priority, route) pairs that had work and how far each was drained some seconds ago, so that a claim does
-- not walk dead index entries while vacuum is held up. Hints may be lost. They are blind to new pairs and to
-- what commits late: sweep := true looks at everything, as a call without hints does (pass them along).
--
-- Concurrency: never waits, skips what is locked; no two calls get the same delivery, none gets more than
-- it asked for. An empty sweep does what tick would, so that a worker that only polls is never stuck.
-- Raises QU001, QU010, QU011, and QU030 outside READ COMMITTED.
create function headrace.poll(
    namespace text,
    queue text default 'main',
    types text[] default null,
    tags text[] default null,
    all_tags boolean default false,
    worker text default null,
    max_events int default 1,
    lease interval default '1 minute',
    "each" boolean default false,
    suspects boolean default true,
    hints text default null,
    sweep boolean default false
) returns setof headrace.claimed
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    t timestamptz := headrace.now();
    q headrace.queues;
    pairs headrace.hint[] := poll.hints;
    suspect headrace.ready;
    lease_id bigint;
    urgency record;
    share int;
    chunk record;
    returned int;
    -- the claimed rows of ready, column by column
    events bigint[] := '{}'; created timestamptz[] := '{}'; routes bigint[] := '{}'; seqs bigint[] := '{}';
    attempts int[] := '{}'; priorities smallint[] := '{}'; failures smallint[] := '{}'; crashes smallint[] := '{}';
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception using errcode = 'QU030',
            message = 'poll needs READ COMMITTED: it hands out what others have just committed';
    end if;
    -- With an asynchronous commit a crash of the server could hand the same attempt out twice.
    if current_setting('synchronous_commit') = 'off' then
        perform set_config('synchronous_commit', 'on', true);
    end if;
    perform headrace.refuse(headrace.poll_problem(types, tags, worker, max_events, lease), 0);
    select queues.* into q
    from headrace.namespaces join headrace.queues on queues.namespace = namespaces.id and queues.name = poll.queue
    where namespaces.name = poll.namespace;
    if not found then
        perform headrace.no_such_queue(poll.namespace, poll.queue);
    end if;

    sweep := sweep or pairs is null;
    for round in 1..2 loop
        if sweep then
            pairs := headrace.refreshed_hints(pairs, q, types, tags, all_tags, max_events);
        end if;

        if suspects then
            select r.* into suspect from headrace.ready r
            where r.queue = q.id and r.suspect
              and (types is null and tags is null or r.route = any (
                      (select headrace.matching_routes(q.namespace, types, tags, all_tags))::bigint[]))
            order by r.priority, r.seq limit 1
            for update skip locked;
            if found and not exists (  -- its turn: nothing unsuspected stands before it
                select from unnest(pairs) k
                join headrace.ready r on r.queue = q.id and r.priority = k.priority and r.route = k.route
                                     and not r.suspect and r.seq >= case when sweep then 0 else k.low end
                where k.priority < suspect.priority or k.priority = suspect.priority and r.seq < suspect.seq)
            then
                delete from headrace.ready r where r.event = suspect.event and r.queue = q.id;
                events := array[suspect.event]; created := array[suspect.created_at]; routes := array[suspect.route];
                attempts := array[suspect.attempts + 1]; priorities := array[suspect.priority];
                failures := array[suspect.failures]; crashes := array[suspect.crashes];
                exit;
            end if;
            suspect := null;
        end if;

        -- The most urgent first; within a priority first a fair share for every pair, then what is left over.
        for urgency in
            select k.priority, count(*)::int as width from unnest(pairs) k group by k.priority order by k.priority
        loop
            share := ceil((max_events - cardinality(events))::numeric / urgency.width);
            loop
                with picked as materialized (
                    select r.ctid
                    from (select k.route, k.low from unnest(pairs) k where k.priority = urgency.priority order by random()) k
                    cross join lateral (
                        select r.ctid from headrace.ready r
                        where r.queue = q.id and r.priority = urgency.priority and r.route = k.route and not r.suspect
                          and r.seq >= case when sweep then 0 else k.low end
                        order by r.seq limit share
                        for update skip locked
                    ) r
                    limit max_events - cardinality(events)
                ),
                gone as (
                    delete from headrace.ready r where r.ctid = any (array(select ctid from picked))
                    returning r.event, r.created_at, r.route, r.seq, r.attempts + 1 as attempt, r.failures
                )
                select array_agg(event) as events, array_agg(created_at) as created, array_agg(route) as routes,
                       array_agg(seq) as seqs, array_agg(attempt) as attempts, array_agg(failures) as failures
                into chunk
                from (select * from gone order by seq) g;
                events := events || chunk.events; created := created || chunk.created; routes := routes || chunk.routes;
                seqs := seqs || chunk.seqs; attempts := attempts || chunk.attempts; failures := failures || chunk.failures;
                priorities := priorities || array_fill(urgency.priority, array[coalesce(cardinality(chunk.events), 0)]);
                -- A second pass where a fair share was not the whole rest, and something is still wanted.
                exit when cardinality(events) >= max_events or share >= max_events;
                share := max_events;
            end loop;
            exit when cardinality(events) >= max_events;
        end loop;
        exit when cardinality(events) > 0 or not sweep;
        -- Nothing at all: perhaps time has made something due.
        exit when not (headrace.tick_due(1000) + headrace.tick_expired(100) > 0);
    end loop;
    if cardinality(events) = 0 then
        return;
    end if;

    lease_id := nextval('headrace.ids');
    if "each" or suspect.event is not null then
        insert into headrace.leases (id, until, picked_at, namespace, queue, size, worker)
        values (lease_id, t + lease, t, q.namespace, q.id, cardinality(events), coalesce(worker, ''));
        insert into headrace.held (event, created_at, route, lease, queue, attempt, position, priority, failures, crashes, suspect)
        select u.event, u.created_at, u.route, lease_id, q.id, u.attempt, u.n - 1, u.priority, u.failures,
               coalesce(crashes[u.n], 0::smallint), suspect.event is not null
        from unnest(events, created, routes, attempts, priorities, failures) with ordinality
            as u(event, created_at, route, attempt, priority, failures, n);
    else
        insert into headrace.leases (id, until, picked_at, namespace, queue, size, worker, events, created_at, attempts, failures)
        values (lease_id, t + lease, t, q.namespace, q.id, cardinality(events), coalesce(worker, ''),
                events, created, attempts, failures);
    end if;

    pairs := headrace.advanced_hints(pairs, priorities, routes, seqs, sweep, t);
    return query
    select u.event, u.attempt, coalesce(e.type, c.type), coalesce(e.tags, c.tags), coalesce(e.payload, c.payload),
           coalesce(e.details, c.details), u.priority, u.failures, coalesce(crashes[u.n], 0::smallint),
           coalesce(e.max_retries, c.max_retries, q.max_retries), u.created_at, lease_id,
           "each" or suspect.event is not null, t + lease, case when u.n = 1 then pairs::text end
    from unnest(events, created, attempts, priorities, failures) with ordinality
        as u(event, created_at, attempt, priority, failures, n)
    left join headrace.events e on e.id = u.event and e.created_at = u.created_at
    left join lateral (select * from headrace.events_carried c where e.id is null and c.id = u.event) c on true
    where coalesce(e.id, c.id) is not null
    order by u.n;

    get diagnostics returned = row_count;
    if returned < cardinality(events) then
        perform headrace.bury_bodyless(lease_id);
    end if;
end $$;
