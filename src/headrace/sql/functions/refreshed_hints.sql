-- The pairs of a queue that have work now, with what the caller's hints knew about them: see poll.
create function headrace.refreshed_hints(
    hints headrace.hint[], q headrace.queues, types text[], tags text[], all_tags boolean, most int
) returns headrace.hint[]
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(array_agg(row(priority, route, low, next, next_at)::headrace.hint order by priority), '{}')
    from (
        select k.priority, k.route, coalesce(max(k.low), 0) as low, max(k.next) as next, max(k.next_at) as next_at
        from (
            select c.priority, c.route, null::bigint as low, null::bigint as next, null::timestamptz as next_at, true as current
            from headrace.claimable(q.namespace, q.id, types, tags, all_tags, most) c
            union all
            select h.priority, h.route, h.low, h.next, h.next_at, false from unnest(hints) h
        ) k
        group by k.priority, k.route
        having bool_or(k.current)
    ) pair
$$;
