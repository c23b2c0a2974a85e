-- The deliveries that are released again and again: see attention. Such a delivery waits for up to
-- a minute between its attempts (see _release_delays), so it is among the deliveries that are due
-- within a minute. Ten at most, of the first 10,000 that are due. home: only this namespace; null:
-- all.
create or replace function headrace._attention_to_released(home int, t timestamptz) returns setof headrace.finding
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
    with soon as materialized (
        select d.* from headrace.delayed d
        where d.due_at > t - interval '1 minute' and d.due_at <= t + interval '1 minute'
        order by d.due_at limit 10000
    )
    select 'released_often', 'warning', q.space, q.name::text,
           jsonb_build_object('event', d.event, 'type', b.type, 'times', r.times), null::timestamptz
    from (
        -- more than ten: deliveries that were snoozed look like these
        select s.* from soon s join headrace.queues q on q.id = s.queue
        where s.attempts - s.failures - s.crashes >= 5 and q.space is not null and (home is null or q.namespace = home)
        order by s.attempts - s.failures - s.crashes desc limit 100
    ) d
    join headrace.queues q on q.id = d.queue
    cross join lateral headrace._releases_in_a_row(q, t, array[d.event], array[d.attempts + 1]) r
    cross join lateral headrace._stored_event(d.event, d.created_at) b
    where r.times >= 5
    order by r.times desc limit 10
$$;
