-- Claims deliveries, as poll does (see there), and tells what it took; their bodies are the caller's matter. Null: nothing.
-- lease null: as long as the queue says, else a minute. Runs under the settings of its caller.
create or replace function headrace.claim(
    namespace text, queue text, types text[], tags text[], all_tags boolean, worker text, max_events int, lease interval,
    "each" boolean, suspects boolean, hints text, sweep boolean, instance uuid, dispatch text
) returns headrace.lot
language plpgsql
as $$
#variable_conflict use_column
declare
    t timestamptz := headrace.now();
    q headrace.queues;
    pairs headrace.hint[] := hints;
    watched bigint[];
    calm int;
    suspect headrace.ready;
    claimed record;
    turn headrace.keyed;
    lease_id bigint;
    lease_token uuid;
    most int;
    i int; stop int; spin int; wanted int; pair headrace.hint;
    haul headrace.haul;
    won headrace.ready[];   -- in strict order
    size int;
    newest timestamptz;     -- the latest time at which one of those claimed became ready
    chunks int := 0;
    fresh boolean;
    plain boolean;          -- none was claimed before, or has a key: they are told in the order of priority and id
    naps int := 0;
    weight int;             -- what the turn of an ordering key counts
    useless boolean := false;
    rounds int := 0;
    ticked boolean := false;
    -- the claimed rows of ready, column by column
    events bigint[] := '{}'; created timestamptz[] := '{}'; seqs bigint[] := '{}';
    routes bigint[] := '{}'; priorities smallint[] := '{}'; attempts int[] := '{}'; failures smallint[] := '{}'; crashes smallint[] := '{}';
    keys text[] := '{}';
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception using errcode = 'QU030',
            message = 'poll needs READ COMMITTED: it hands out what others have just committed';
    end if;
    -- With an asynchronous commit a crash of the server could hand the same attempt out twice.
    if current_setting('synchronous_commit') = 'off' then
        perform set_config('synchronous_commit', 'on', true);
    end if;
    if max_events is null or max_events not between 1 and 1000 then
        raise exception using errcode = 'QU001', message = 'max_events is a number from 1 to 1000';
    elsif lease < interval '0.1 seconds' or lease > interval '7 days' then
        raise exception using errcode = 'QU001', message = 'a lease lasts from 0.1 seconds to 7 days: a worker could not renew a shorter one in time';
    elsif length(worker) > 200 then
        raise exception using errcode = 'QU001', message = 'the name of a worker has at most 200 characters';
    elsif dispatch is null or dispatch not in ('atomic', 'collect') then
        raise exception using errcode = 'QU001', message = 'dispatch is atomic or collect';
    end if;
    select * into q from headrace.queues where queues.space = claim.namespace and queues.name = claim.queue
      and (not queues.bound or headrace.admits(queues.space));
    if not found then
        perform headrace.no_such_queue(claim.namespace, claim.queue);
    end if;

    if q.state = 'paused' then
        return null;
    end if;
    most := least(max_events, q.batch_size);
    lease := coalesce(lease, q.lease, interval '1 minute');
    weight := greatest(1, most / 64);   -- a turn takes statements of its own: about 64 in a claim
    sweep := sweep or pairs is null;
    loop
        if q."order" = 'oldest' then
            if types is not null or tags is not null then
                watched := headrace.watched_routes(q, types, tags, all_tags);
            end if;
            won := headrace.claim_oldest(q, watched, most, suspects, coalesce(worker, ''));
            select array_agg(o.event), array_agg(o.created_at), array_agg(o.route), array_agg(o.priority), array_agg(o.attempts + 1),
                   array_agg(o.failures), array_agg(o.crashes), array_agg(o.event), array_agg(o.key), max(coalesce(o.ready_at, o.created_at)),
                   max(o.event) filter (where o.suspect)
            into events, created, routes, priorities, attempts, failures, crashes, seqs, keys, newest, suspect.event
            from unnest(won) o;
            pairs := null;
            keys := case when array_remove(keys, null) <> '{}' then keys else '{}' end;
            exit when events is not null or ticked
                   or headrace.tick_due(1000) + headrace.tick_expired(100) + (headrace.tick_schedules(100)).fired = 0;
            ticked := true;
            continue;
        end if;
        if sweep then
            if types is not null or tags is not null then
                watched := headrace.watched_routes(q, types, tags, all_tags);
            end if;
            pairs := headrace.sweep(q, false, watched, most, pairs) || headrace.sweep(q, true, watched, 10, pairs);
        end if;
        -- The pairs of suspects are the last ones.
        calm := cardinality(pairs);
        while calm > 0 and pairs[calm].suspect loop
            calm := calm - 1;
        end loop;

        if suspects and calm < cardinality(pairs) then
            -- The pair with the oldest one first; it is locked only there, so that another worker gets the next.
            for i in
                select p.n from unnest(pairs) with ordinality as p(suspect, priority, route, low, next, next_at, n)
                where p.suspect
                order by p.priority, (
                    select r.seq from headrace.ready r
                    where r.queue = q.id and r.suspect and r.priority = p.priority and r.route = p.route
                      and r.seq >= case when sweep then 0 else p.low end
                    order by r.seq limit 1)
            loop
                select r.* into suspect from headrace.ready r
                where r.queue = q.id and r.suspect and r.priority = pairs[i].priority and r.route = pairs[i].route
                  and r.seq >= case when sweep then 0 else pairs[i].low end
                order by r.seq limit 1
                for update skip locked;
                exit when found;
            end loop;
            if suspect.event is not null and headrace.its_turn(suspect, pairs[:calm], sweep)
               and headrace.may_have_a_suspect(q, coalesce(worker, '')) then
                delete from headrace.ready r
                where r.queue = q.id and r.suspect and r.priority = suspect.priority and r.route = suspect.route and r.seq = suspect.seq;
                if suspect.key is not null then
                    select * into claimed from headrace.claim_turns(q, pairs[i], array[suspect.key]);
                    if claimed.busy <> '{}' then
                        perform headrace.leave_token(q.id, true, suspect.priority, suspect.route, suspect.key);
                    end if;
                    useless := claimed.useless;
                    turn := claimed.turns[1];
                    suspect.event := turn.event; suspect.created_at := turn.created_at; suspect.attempts := turn.attempts;
                    suspect.failures := turn.failures; suspect.crashes := turn.crashes;
                    keys := array_remove(array[turn.key], null);
                end if;
            else
                suspect := null;
            end if;
            if suspect.event is not null then
                events := array[suspect.event]; created := array[suspect.created_at]; routes := array[suspect.route];
                priorities := array[suspect.priority]; attempts := array[suspect.attempts + 1];
                failures := array[suspect.failures]; crashes := array[suspect.crashes];
                newest := coalesce(suspect.ready_at, suspect.created_at);
                pairs[i] := headrace.moved_on(pairs[i], suspect.seq, t);
                exit;
            end if;
        end if;

        -- The most urgent priority first. Within it: from a random pair on, first a fair share for each, then the rest.
        i := 1;
        while i <= calm and cardinality(events) < most loop
            stop := i;
            while stop < calm and pairs[stop + 1].priority = pairs[i].priority loop
                stop := stop + 1;
            end loop;
            spin := floor(random() * (stop - i + 1));
            for pass in 1..2 loop
                for k in 0..stop - i loop
                    wanted := most - cardinality(events);
                    exit when wanted <= 0;
                    if pass = 1 then
                        wanted := ceil(wanted / (stop - i + 1 - k)::float8);
                    end if;
                    pair := pairs[i + (k + spin) % (stop - i + 1)];
                    haul := headrace.claim_pair(q, pair, case when sweep then 0 else pair.low end, wanted, weight);
                    size := cardinality(haul.events);
                    if size is null then
                        useless := useless or haul.first is not null;
                        continue;
                    end if;
                    chunks := chunks + 1;
                    newest := greatest(newest, haul.newest);
                    if haul.keys is not null or cardinality(keys) > 0 then
                        keys := keys || array_fill(null::text, array[cardinality(events) - cardinality(keys)])
                                     || coalesce(haul.keys, array_fill(null::text, array[size]));
                        most := most - (weight - 1) * coalesce(cardinality(array_remove(haul.keys, null)), 0);
                        chunks := case when size > 1 then 2 else chunks end;    -- turns come after the others: they are to be sorted
                    end if;
                    events := events || haul.events; created := created || haul.created; seqs := seqs || haul.seqs;
                    attempts := attempts || haul.attempts; failures := failures || haul.failures;
                    routes := routes || array_fill(pair.route, array[size]);
                    priorities := priorities || array_fill(pair.priority, array[size]);
                    pairs[i + (k + spin) % (stop - i + 1)] := headrace.moved_on(pair, haul.first, t);
                end loop;
                exit when i = stop;
            end loop;
            i := stop + 1;
        end loop;
        exit when chunks > 0;
        if useless and rounds < 20 then     -- nothing but tokens that are gone now, or elsewhere: what is behind them?
            useless := false;
            rounds := rounds + 1;
            sweep := true;
            continue;
        end if;
        if naps < 3 and headrace.is_opening(q, pairs[:calm], sweep) then
            naps := naps + 1;
            perform pg_sleep(0.002);
            continue;
        end if;
        -- Nothing at all: perhaps time has made something due.
        exit when not sweep or ticked or headrace.tick_due(1000) + headrace.tick_expired(100) + (headrace.tick_schedules(100)).fired = 0;
        ticked := true;
    end loop;
    if cardinality(events) > 0 is not true then
        return null;
    end if;
    fresh := 1 = all (attempts);
    plain := fresh and seqs = events and cardinality(keys) = 0;
    if chunks > 1 and not plain then
        select array_agg(u.e), array_agg(u.c), array_agg(u.r), array_agg(u.p), array_agg(u.a), array_agg(u.f), array_agg(u.k)
        into events, created, routes, priorities, attempts, failures, keys
        from (select * from unnest(events, created, routes, priorities, attempts, failures, keys, seqs) as u(e, c, r, p, a, f, k, s)
              order by u.p, u.s) u;
    end if;

    if cardinality(keys) > 0 then   -- when one of a key came back is written nowhere
        t := headrace.now();
    end if;
    t := headrace.not_before(t, newest);
    "each" := "each" or suspect.event is not null or array_remove(keys, null) <> '{}';
    lease_id := nextval('headrace.ids');
    lease_token := gen_random_uuid();
    if "each" then
        insert into headrace.leases (id, until, picked_at, namespace, queue, size, worker, instance, suspect, token, collects)
        values (lease_id, t + lease, t, q.namespace, q.id, cardinality(events), coalesce(worker, ''), claim.instance, suspect.event is not null, lease_token,
                dispatch = 'collect');
        insert into headrace.held (event, created_at, route, lease, queue, attempt, position, priority, failures, crashes, suspect, key, token)
        select u.event, u.created_at, u.route, lease_id, q.id, u.attempt, u.n - 1, u.priority, u.failures,
               coalesce(crashes[u.n], 0), suspect.event is not null, u.key, lease_token
        from unnest(events, created, routes, attempts, priorities, failures, keys) with ordinality
            as u(event, created_at, route, attempt, priority, failures, key, n);
    else
        insert into headrace.leases (id, until, picked_at, namespace, queue, size, worker, instance, events, created_at, attempts, failures, token, collects)
        values (lease_id, t + lease, t, q.namespace, q.id, cardinality(events), coalesce(worker, ''), claim.instance, events, created,
                case when not fresh then attempts end, case when not fresh then failures end, lease_token, dispatch = 'collect');
    end if;
    return row(lease_id, "each", t + lease, q.max_retries, pairs::text, events, created, attempts, priorities, failures, crashes, plain, lease_token, t);
end $$;
