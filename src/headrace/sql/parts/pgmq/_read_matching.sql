-- Reads messages that contain `conditional`, the oldest first. As in pgmq the function reads every
-- waiting message, because no index finds them: a queue for each kind is better. It leaves messages
-- with an ordering key to readers without a condition, which take them in turn.
-- Concurrency: skips locked rows. Raises QU001, QU030.
create or replace function pgmq._read_matching(kind text, q headrace.queues, vt integer, qty integer, conditional jsonb)
returns setof pgmq.message_record
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '10ms'
as $$
#variable_conflict use_variable
declare
    t timestamptz := headrace._now();
    until timestamptz := t + make_interval(secs => vt);
    missing int := qty;
    one record;
    taken headrace.taken[];
    k headrace.taken;
    claim bigint;
    released headrace.taken[] := '{}';
    members headrace.membership[];
    locked record;
    lot headrace.lot;
begin
    if vt is null or qty is null then
        raise exception using errcode = 'QU001', message = 'vt and qty are numbers';
    elsif current_setting('transaction_isolation') <> 'read committed' then
        raise exception using errcode = 'QU030',
            message = 'read needs READ COMMITTED: it hands out what others have just committed';
    elsif q.state = 'paused' then
        return;
    end if;
    perform headrace._tick_due(greatest(qty, 100)), headrace._tick_expired(greatest(qty, 100));
    for one in
        select d.event, d.attempts + 1 as attempt, b.route, b.priority, b.created_at, b.details,
               case kind when 'own' then b.payload
                         else pgmq._envelope(q.space, b.type, b.payload, b.details, b.id, d.attempts + 1,
                                             b.created_at) end as message
        from headrace.deliveries d cross join lateral headrace._stored_event(d.event, d.created_at) b
        where d.queue = q.id and d.lease is null and d.due_at is null and b.key is null
        order by d.event
    loop
        exit when missing <= 0;
        continue when not one.message @> conditional;
        if q.limits is not null then
            members := headrace._limited_groups(q, array[one.route]);
            locked := headrace._lock_limit_groups(q, members, t);
            continue when (select min(room) <= 0 from unnest(locked.rooms) room);
        end if;
        begin
            taken := headrace._take_waiting(q, array[one.event]);
        exception when lock_not_available then
            continue;
        end;
        continue when taken = '{}';
        k := taken[1];
        claim := nextval('headrace.ids');
        insert into headrace.leases (id, until, picked_at, namespace, queue, size, worker, lenient)
        values (claim, until, t, q.namespace, q.id, 1, 'pgmq', true);
        insert into headrace.held (event, created_at, route, lease, queue, attempt, position, priority, failures,
                                   crashes, suspect)
        values (k.event, k.created_at, one.route, claim, q.id, one.attempt, 0, one.priority, k.failures,
                k.crashes, k.suspect);
        if q.limits is not null then
            lot.lease := claim; lot.held := true; lot.picked_at := headrace._log_time(t, locked.at);
            lot.events := array[k.event]; lot.attempts := array[one.attempt];
            perform headrace._take_slots(q, lot, array[one.route], null, members);
        end if;
        if until <= t then
            released := released || headrace._take_held(q, array[k.event], array[one.attempt]);
            perform pgmq._drop_leases(array[claim]);
        end if;
        missing := missing - 1;
        return next row(one.event, one.attempt, one.created_at, t, until, one.message,
                        one.details -> 'headers')::pgmq.message_record;
    end loop;
    if released <> '{}' then
        perform headrace._settle(q, t, 'release', released, null, null, null);
    end if;
end $$;
