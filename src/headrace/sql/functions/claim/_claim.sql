-- Claims deliveries, as poll does (see there), and returns them; the caller reads the events
-- themselves. Null: nothing; or, for a queue with limits, no lease: see lot. lease null: the queue's
-- length, else a minute. Runs under the settings of its caller.
create or replace function headrace._claim(
    namespace text, queue text, types text[], tags text[], all_tags boolean, worker text, max_events int,
    lease interval, "each" boolean, suspects boolean, hints text, sweep boolean, instance uuid, dispatch text,
    limited int default null
) returns headrace.lot
language plpgsql
as $$
#variable_conflict use_column
declare
    t timestamptz := headrace._now();
    q headrace.queues;
    pairs headrace.hint[] := hints;
    most int;
    won record;     -- the claimed deliveries, column by column: see _claim_fair
    members headrace.membership[];  -- the groups with limits from which it took
    keyed boolean; fresh boolean; lot headrace.lot;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception using errcode = 'QU030',
            message = 'poll needs READ COMMITTED: it hands out what others have just committed';
    end if;
    -- With an asynchronous commit a crash of the server could hand the same attempt out twice.
    if current_setting('synchronous_commit') = 'off' then
        perform set_config('synchronous_commit', 'on', true);
    end if;
    if max_events is null or max_events not between 1 and 1000 or lease < interval '0.1 seconds'
       or lease > interval '7 days' or length(worker) > 200 or dispatch is null
       or dispatch not in ('atomic', 'collect') then
        perform headrace._raise_problem(headrace._claim_problem(max_events, lease, worker), 0);
    end if;
    select * into q from headrace.queues where queues.space = _claim.namespace and queues.name = _claim.queue
      and (not queues.bound or headrace._has_access(queues.space));
    if not found then
        perform headrace._raise_no_such_queue(_claim.namespace, _claim.queue);
    end if;
    if q.state = 'paused' then
        return null;
    end if;

    most := least(max_events, q.batch_size);
    if q.limits is not null or q.fair_by is not null or q.aging is not null then
        won := headrace._claim_limited(q, types, tags, all_tags, most, limited, suspects, coalesce(worker, ''),
                                       sweep or pairs is null, t, pairs);
        members := won.members; lot.look_in := won.look_in; t := won.t;
    elsif q."order" = 'oldest' then
        won := headrace._claim_in_strict_order(q, types, tags, all_tags, most, suspects, coalesce(worker, ''));
    else
        won := headrace._claim_fair(q, types, tags, all_tags, most, suspects, coalesce(worker, ''),
                                    sweep or pairs is null, t, pairs);
    end if;
    if won.events is null then
        return case when lot.look_in is not null then lot end;
    end if;
    keyed := won.keys is not null;
    -- The log does not say when a delivery of a key came back: the claim must be later than that.
    t := headrace._log_time(case when keyed then headrace._now() else t end, won.newest);
    fresh := 1 = all (won.attempts);
    lot.is_plain := fresh and not keyed and won.seqs is not distinct from won.events;
    if won.chunks > 1 and not lot.is_plain then
        select array_agg(u.e), array_agg(u.c), array_agg(u.r), array_agg(u.p), array_agg(u.a), array_agg(u.f),
               array_agg(u.k)
        into won.events, won.created, won.routes, won.priorities, won.attempts, won.failures, won.keys
        from (
            select * from unnest(won.events, won.created, won.routes, won.priorities, won.attempts, won.failures,
                                 won.keys, won.seqs) as u(e, c, r, p, a, f, k, s)
            order by u.p, u.s) u;
    end if;

    lot.picked_at := t;
    lot.until := t + coalesce(lease, q.lease, interval '1 minute');
    lot.lease := nextval('headrace.ids'); lot.lease_token := gen_random_uuid();
    lot.held := coalesce("each", false) or won.is_suspect or keyed;
    insert into headrace.leases (id, until, picked_at, namespace, queue, size, worker, instance, suspect, events,
                                 created_at, attempts, failures, token, collects)
    values (lot.lease, lot.until, t, q.namespace, q.id, cardinality(won.events), coalesce(worker, ''),
            _claim.instance, won.is_suspect,
            case when not lot.held then won.events end, case when not lot.held then won.created end,
            case when not (lot.held or fresh) then won.attempts end,
            case when not (lot.held or fresh) then won.failures end, lot.lease_token, dispatch = 'collect');
    if lot.held then
        insert into headrace.held (event, created_at, route, lease, queue, attempt, position, priority, failures,
                                   crashes, suspect, key, token)
        select u.event, u.created_at, u.route, lot.lease, q.id, u.attempt, u.n - 1, u.priority, u.failures,
               coalesce(won.crashes[u.n], 0), won.is_suspect, u.key, lot.lease_token
        from unnest(won.events, won.created, won.routes, won.attempts, won.priorities, won.failures, won.keys)
            with ordinality as u(event, created_at, route, attempt, priority, failures, key, n);
    end if;
    lot.max_retries := q.max_retries; lot.hints := won.pairs::text;
    lot.events := won.events; lot.created := won.created; lot.attempts := won.attempts;
    lot.priorities := won.priorities; lot.failures := won.failures; lot.crashes := won.crashes;
    if q.limits is not null then
        perform headrace._take_slots(q, lot, won.routes, won.keys, members);
    end if;
    return lot;
end $$;
