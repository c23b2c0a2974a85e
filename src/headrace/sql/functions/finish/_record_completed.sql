-- Logs and counts completed attempts of one claim: one row per bucket of 1,024 places, so that an
-- event's rows are found by its bucket. `positions` null: the events are the lease's members,
-- all of them, in its order.
create or replace function headrace._record_completed(
    q headrace.queues, t timestamptz, lease bigint, picked_at timestamptz, worker text,
    events bigint[], attempts int[], positions smallint[], ms int[], codes int[]
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    size int;
    first bigint;   -- the place of the first event
    buckets bigint[]; lows int[]; highs int[];
    is_sliced boolean;
begin
    t := headrace._log_time(t, picked_at);
    if cardinality(events) = 1 then
        insert into headrace.outcomes (id, at, picked_at, bucket, lease, namespace, queue, action, worker, events,
                                       attempts, positions, ms, codes)
        values (nextval('headrace.ids'), t, picked_at, headrace._bucket(events[1]), lease, q.namespace, q.id,
                'COMPLETED', worker, events, attempts, coalesce(positions, '{0}'), nullif(ms, array[null::int]),
                nullif(codes, array[null::int]));
        insert into headrace.counts (at, namespace, queue, completed, attempts, timed, ms)
        values (t, q.namespace, q.id, 1, 1, (ms[1] is not null)::int, coalesce(ms[1], 0));
        return;
    end if;
    -- A batch is mostly of consecutive ids, or in their order, and a bucket is a slice of it, which
    -- is quick. Otherwise the members of a bucket are gathered.
    size := cardinality(events);
    first := headrace.place(events[1]);
    if headrace.place(events[size]) - first = size - 1
       and events = array(select headrace._id_at(p) from generate_series(first, first + size - 1) p) then
        select true, array_agg(b), array_agg(greatest((b << 10) - first + 1, 1)),
               array_agg(least((b + 1 << 10) - first, size))
        into is_sliced, buckets, lows, highs
        from generate_series(first >> 10, first + size - 1 >> 10) b;
    else
        select array_agg(b.bucket), array_agg(b.low), array_agg(b.high), bool_and(b.high - b.low + 1 = b.size)
        into buckets, lows, highs, is_sliced
        from (select headrace._bucket(u.event) as bucket, min(u.n)::int as low, max(u.n)::int as high, count(*) as size
              from unnest(events) with ordinality as u(event, n) group by 1) b;
    end if;
    if is_sliced then
        insert into headrace.outcomes (id, at, picked_at, bucket, lease, namespace, queue, action, worker, events,
                                       attempts, positions, ms, codes)
        select nextval('headrace.ids'), t, picked_at, s.bucket, lease, q.namespace, q.id, 'COMPLETED', worker,
               events[s.low:s.high], attempts[s.low:s.high],
               coalesce(positions[s.low:s.high], array[s.low - 1]),
               ms[s.low:s.high], codes[s.low:s.high]
        from unnest(buckets, lows, highs) as s(bucket, low, high);
    else
        insert into headrace.outcomes (id, at, picked_at, bucket, lease, namespace, queue, action, worker, events,
                                       attempts, positions, ms, codes)
        select nextval('headrace.ids'), t, picked_at, b.bucket, lease, q.namespace, q.id, 'COMPLETED', worker,
               b.events, b.attempts, b.positions,
               case when _record_completed.ms is not null then b.ms end,
               case when _record_completed.codes is not null then b.codes end
        from (
            select headrace._bucket(u.event) as bucket, array_agg(u.event) as events, array_agg(u.attempt) as attempts,
                   array_agg(coalesce(u.position, (u.n - 1)::smallint)) as positions, array_agg(u.ms) as ms,
                   array_agg(u.code) as codes
            from unnest(events, attempts, positions, ms, codes) with ordinality as u(event, attempt, position,
                ms, code, n)
            group by headrace._bucket(u.event)
        ) b;
    end if;
    insert into headrace.counts (at, namespace, queue, completed, attempts, timed, ms)
    select t, q.namespace, q.id, cardinality(events), cardinality(events), count(m), coalesce(sum(m), 0)
    from unnest(ms) m;
end $$;
