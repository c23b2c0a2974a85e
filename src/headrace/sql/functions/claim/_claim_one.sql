-- Claims one delivery as _claim does, in fewer statements. Null: something stands in the way, and
-- nothing was changed; _claim decides. The queue has limits or another order than that of routes,
-- the hints name a suspect, what comes next is in a pack or has an ordering key, or an argument is
-- wrong. Runs under the settings of its caller.
-- Concurrency: skips locked rows, as _claim_route does.
create or replace function headrace._claim_one(
    namespace text, queue text, worker text, lease interval, "each" boolean, suspects boolean, hints text,
    instance uuid, dispatch text
) returns headrace.lot
language plpgsql
as $$
#variable_conflict use_variable
declare
    pairs headrace.hint[] := hints;
    turns int[] := '{1}'; place int; pair headrace.hint;
    began timestamptz; t timestamptz;
    its_queue int; space int; retries smallint; lasts interval;
    event bigint; created timestamptz; first bigint; attempt int; failures smallint;
    lot headrace.lot;
begin
    -- Simple statements, and few expressions: see publish_one.
    select headrace._now(), q.id, q.namespace, q.max_retries, coalesce(lease, q.lease, interval '1 minute')
    into began, its_queue, space, retries, lasts
    from headrace.queues q
    where q.space = namespace and q.name = queue and (not q.bound or headrace._has_access(namespace))
      and q.state <> 'paused' and q."order" = 'fair' and q.limits is null and q.fair_by is null and q.aging is null
      and (lease is null or lease between interval '0.1 seconds' and interval '7 days')
      and (worker is null or length(worker) <= 200) and dispatch in ('atomic', 'collect')
      and not (suspects and pairs[cardinality(pairs)].suspect)
      and current_setting('transaction_isolation') = 'read committed'
      and current_setting('synchronous_commit') <> 'off';
    if not found then
        return null;
    end if;

    if cardinality(pairs) > 1 then  -- the most urgent priority first, and in it a random pair: see _claim_fair
        turns := array(
            select p.n from unnest(pairs) with ordinality p(suspect, priority, route, low, next, next_at, n)
            where not p.suspect order by p.priority, random());
    end if;
    foreach place in array turns loop
        pair := pairs[place];
        delete from headrace.ready r where r.ctid = (
            select p.ctid from headrace.ready p
            where p.queue = its_queue and not p.suspect and p.priority = pair.priority and p.route = pair.route
              and p.seq >= pair.low
            order by p.seq limit 1
            for update skip locked)
          and r.pack is null and r.key is null
        returning r.event, r.created_at, r.seq, r.attempts + 1, r.failures,
                  headrace._log_time(began, coalesce(r.ready_at, r.created_at))
        into event, created, first, attempt, failures, t;
        exit when found;
        -- A token, a pack or a row that is locked: nothing less urgent may come before it.
        if exists (select from headrace.ready r
                   where r.queue = its_queue and not r.suspect and r.priority = pair.priority and r.route = pair.route
                     and r.seq >= pair.low) then
            return null;
        end if;
    end loop;
    if event is null then
        return null;
    end if;

    if (abs(extract(epoch from t) - pair.next_at) < 0.25) is not true then  -- else it stays: see _advance_hint
        pairs[place] := headrace._advance_hint(pair, first, t);
        hints := pairs::text;
    end if;
    insert into headrace.leases as l (id, until, picked_at, namespace, queue, size, worker, instance, events,
                                      created_at, attempts, failures, collects)
    values (nextval('headrace.ids'), t + lasts, t, space, its_queue, 1, coalesce(worker, ''), instance,
            case when "each" is not true then array[event] end, case when "each" is not true then array[created] end,
            case when "each" is not true and attempt > 1 then array[attempt] end,
            case when "each" is not true and attempt > 1 then array[failures] end, dispatch = 'collect')
    returning l.id, "each" is true, l.until, retries, hints, array[event], array[created], array[attempt],
              array[pair.priority], array[failures], null, false, l.token, l.picked_at, null
    into lot;
    if "each" then
        insert into headrace.held (event, created_at, route, lease, queue, attempt, position, priority, failures,
                                   crashes, suspect, token)
        values (event, created, pair.route, lot.lease, its_queue, attempt, 0, pair.priority, failures, 0, false,
                lot.lease_token);
    end if;
    return lot;
end $$;
