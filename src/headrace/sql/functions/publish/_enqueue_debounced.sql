-- Queues the debounced events of a batch, which are stored: each supersedes, in every queue that
-- takes it, the last event of its key there, if that waits and was never claimed. It is due when
-- the key has been quiet for `settle`, and at the latest `at_latest` after the first event was
-- published of those that it supersedes, one through the other. `which`, places: the head of each
-- of `ids`, and its place in the batch. A delivery that is in progress, waits for its retry, or has
-- ended is not touched: at_latest counts anew then.
-- Concurrency: waits only for an open publisher of the same key. Keys are taken in their order, so
-- that two batches do not wait for each other. A delivery that another session is moving right now,
-- a claim or a tick that makes it ready, counts as begun. Above READ COMMITTED also 40001.
-- Raises QU001 for an event without a settle, and for one with another ordering key than the event
-- that it would supersede.
create or replace function headrace._enqueue_debounced(
    heads headrace.head[], ids bigint[], which int[], places bigint[], t timestamptz
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_variable
declare
    one record;
    last headrace.debounce_keys;
    place text;     -- in which the delivery waited that is superseded; null: there is none
    its_route bigint;
    its_priority smallint;
    its_seq bigint;
    now timestamptz;
    first_at timestamptz;
    due_at timestamptz;
begin
    for one in
        select u.id, u.place, h.type, h.route, h.priority, h.key, h.debounce, h.settle, h.at_latest, q.id as queue, q
        from unnest(ids, which, places) as u(id, head, place)
        join unnest(heads) h on h.n = u.head
        left join headrace.queues q on q.id = any (h.queues)
        where h.debounce is not null
        order by h.debounce, q.id, u.id
    loop
        if one.settle is null then
            perform headrace._raise_problem('QU001 a debounced event has a settle: the seconds of quiet after which '
                                            'it is due', one.place);
        end if;
        continue when one.queue is null;
        last := headrace._lock_debounce_key(one.queue, one.debounce, one.id, one.key, t);
        now := headrace._now();     -- the publishers of a busy key wait for each other
        first_at := now;
        place := null;
        if last.event <> one.id then
            select k.place, k.route, k.priority, k.seq into place, its_route, its_priority, its_seq
            from headrace._take_unstarted(one.queue, last.event) k;
        end if;
        if place is not null then
            if last.ordering_key is distinct from one.key then
                perform headrace._raise_problem(format(
                    'QU001 a debounced event has the ordering key of the one that it supersedes: that of event %s, '
                    'which waits under its debounce key, is %s',
                    last.event, coalesce(quote_literal(last.ordering_key), 'none')), one.place);
            end if;
            first_at := last.first_at;
            perform headrace._log_superseded(one.q, now, last, one.id, place = 'keyed');
        end if;
        due_at := least(now + one.settle, first_at + one.at_latest);
        update headrace.debounce_keys d
        set event = one.id, created_at = t, first_at = first_at, ordering_key = one.key,
            look_at = greatest(due_at, now) + interval '1 hour'
        where d.queue = one.queue and d.key = one.debounce;
        if due_at > now then
            insert into headrace.delayed (event, created_at, due_at, route, queue, priority, key)
            values (one.id, t, due_at, one.route, one.queue, one.priority, one.key);
        elsif one.key is null then
            -- It takes the place in the queue, too: else an event of a busy key would never be the
            -- first where there is a backlog.
            insert into headrace.ready (event, created_at, route, seq, queue, priority, ready_at)
            values (one.id, t, one.route,
                    case when place = 'ready' and its_route = one.route and its_priority = one.priority then its_seq
                         else nextval('headrace.ids') end,
                    one.queue, one.priority, now);
        else
            insert into headrace.keyed (queue, key, event, created_at, route, priority)
            values (one.queue, one.key, one.id, t, one.route, one.priority);
            insert into headrace.ready (event, created_at, route, seq, queue, priority, key)
            values (0, t, one.route, one.id, one.queue, one.priority, one.key);
        end if;
    end loop;
end $$;
