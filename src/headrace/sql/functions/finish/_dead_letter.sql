-- Dead-letters these items of _settle, with its arguments and settings. Decides about them once
-- more, so that _settle need not keep their content. Called after their ends are in the log, so
-- that its entries come behind them.
create or replace function headrace._dead_letter(
    q headrace.queues, t timestamptz, usual text, taken headrace.taken[], others jsonb, items int[]
) returns void
language plpgsql
as $$
#variable_conflict use_column
begin
    with dead as materialized (
        select e.*, left(e.other ->> 'error', 65536) as error,
               case when e.type is null then 'Its event is no longer stored'
                    else coalesce(e.other ->> 'reason', e.other ->> 'last_reason',
                                  case when e.action = 'fail' then 'Max retries exceeded'
                                       else 'Its workers crashed or lost their leases' end) end as reason
        from headrace._decided_ends(
            q, t, usual, array(select k from unnest(taken) k where k.item = any (items)), others, null) e
    ),
    buried as (
        insert into headrace.dead_letters (event, queue, namespace, created_at, died_at, status, reason, error,
                                           fingerprint, attempts, failures, crashes, route, priority, max_retries,
                                           type, tags, payload, details, key)
        select e.event, q.id, q.namespace, e.created_at, e.at, e.status, e.reason, e.error,
               headrace._fingerprint(e.reason, e.error), e.attempt, e.failures, e.crashes, coalesce(e.route, 0),
               coalesce(e.priority, 5::smallint), e.own_max_retries, coalesce(e.type, 'event'), e.tags,
               coalesce(e.payload, 'null'), e.details, e.key
        from dead e
    )
    insert into headrace.outcomes (id, at, bucket, namespace, queue, action, worker, reason, events, attempts)
    select nextval('headrace.ids'), e.at, headrace._bucket(e.event), q.namespace, q.id, e.entry, e.worker, e.why,
           array[e.event], array[e.attempt]
    from (
        select d.*, l.entry, l.why
        from dead d
        -- The entry of an abandoned attempt does not say how its delivery ended: the end has an
        -- entry of its own.
        cross join lateral (values (1, d.status, d.reason), (2, 'DEAD_LETTERED', null)) l(place, entry, why)
        where l.entry <> d.logged
        order by d.item, l.place
    ) e;
end $$;
