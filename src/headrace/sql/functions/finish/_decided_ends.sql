-- How attempts end that were just taken out of a claim: the charge of each, whether its delivery is
-- dead, its log entry and when it is due again. Only this function decides that; it changes
-- nothing. The arguments are those of _settle, which says what the actions mean.
--     delays   after how many seconds a released delivery is due, by item, if it was not snoozed: see
--              _release_delays
--     type     null: the event is stored nowhere any more. Of a completed delivery nothing is read
--     own_max_retries, max_retries   the event's; the one that applies
-- PostgreSQL inlines this into the statement that calls it: no SET clause, and declared stable,
-- although the jitter of a backoff is random.
create or replace function headrace._decided_ends(
    q headrace.queues, t timestamptz, usual text, taken headrace.taken[], others jsonb, delays int[]
) returns table (
    item int, event bigint, attempt int, created_at timestamptz, lease bigint, "position" smallint,
    picked_at timestamptz, worker text, key text, other jsonb, action text, type text, tags text[], payload jsonb,
    details jsonb, route bigint, priority smallint, own_max_retries smallint, failures smallint, crashes smallint,
    suspect boolean, max_retries smallint, dead boolean, at timestamptz, status text, logged text, due_at timestamptz,
    snoozed_until timestamptz
)
language sql stable
as $$
    with charged as materialized (
        select i.item, i.event, i.attempt, i.created_at, i.lease, i.position, i.picked_at, i.worker, i.key,
               a.other, a.action, b.type, b.tags, b.payload, b.details, b.route, b.priority, b.max_retries as own,
               (i.failures + (a.action = 'fail')::int)::smallint as failures,
               (i.crashes + (a.action = 'abandon' and i.suspect)::int)::smallint as crashes,
               i.suspect or a.action = 'abandon' as suspect,
               a.action = 'fail' or a.action = 'abandon' and i.suspect as charged,
               coalesce(b.max_retries, (a.other ->> 'max_retries')::smallint, l.max_retries,
                        q.max_retries) as max_retries
        from unnest(taken) i
        cross join lateral (select others -> i.item::text as other) o
        cross join lateral (select o.other, coalesce(o.other ->> 'action', usual) as action) a
        -- null: it is not called
        left join lateral headrace._stored_event(case when a.action <> 'complete' then i.event end, i.created_at) b
            on true
        cross join lateral (
            select case when a.action = 'abandon' and i.suspect and i.failures > 0
                        then headrace._last_max_retries(i.event, q.id, i.created_at) end as max_retries
        ) l
    )
    select c.item, c.event, c.attempt, c.created_at, c.lease, c.position, c.picked_at, c.worker, c.key,
           c.other, c.action, c.type, c.tags, c.payload, c.details, c.route, c.priority, c.own, c.failures, c.crashes,
           c.suspect, c.max_retries, d.dead, headrace._log_time(t, c.picked_at), s.status,
           case c.action
               when 'complete' then 'COMPLETED'
               when 'release' then case when d.snoozed_until is null then 'RELEASED' else 'SNOOZED' end
               when 'abandon' then 'ABANDONED'
               else case when d.dead then s.status else 'FAILED' end
           end,
           case when d.dead then null
                when c.action = 'fail' then t + coalesce(
                    make_interval(secs => (c.other ->> 'retry_in')::float8),
                    headrace._backoff(coalesce(c.details -> 'backoff', c.other -> 'backoff', q.backoff), c.failures))
                when c.action = 'release'
                    then coalesce(d.snoozed_until, t + make_interval(secs => coalesce(delays[c.item], 0)))
                when c.action = 'abandon' then t
           end, d.snoozed_until
    from charged c
    cross join lateral (
        select c.action <> 'complete' and c.type is null
            or c.charged
            and (c.other ? 'reason' or c.failures + c.crashes >= greatest(1, c.max_retries)) is true as dead,
               case when c.other ? 'delay'
                    then t + make_interval(secs => greatest((c.other ->> 'delay')::float8, 0.1)) end as snoozed_until
    ) d
    cross join lateral (select coalesce(c.other ->> 'status', 'FAILED') as status) s
$$;
