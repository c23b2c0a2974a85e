-- Moves a caller's hints on after a claim: see poll. What a pair has been drained to becomes its bound a
-- quarter of a second later, when those who drew lower numbers have most likely committed; whoever took
-- longer is found by the next sweep. A sweep that found something below the bound lowers it again, so that
-- the rest of a late commit follows at full speed.
create function headrace.advanced_hints(
    hints headrace.hint[], priorities smallint[], routes bigint[], seqs bigint[], swept boolean, t timestamptz
) returns headrace.hint[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select array_agg(
        case
            when least(low, first) < low and swept then row(priority, route, first, first, t)::headrace.hint
            when next_at is null then row(priority, route, low, first, case when first is not null then t end)::headrace.hint
            when first is not null and t >= next_at + interval '250 ms' then row(priority, route, greatest(low, next), first, t)::headrace.hint
            else row(priority, route, low, next, next_at)::headrace.hint
        end
        order by priority)
    from (
        select k.priority, k.route, coalesce(max(k.low), 0) as low, max(k.next) as next, max(k.next_at) as next_at, min(k.seq) as first
        from (
            select h.priority, h.route, h.low, h.next, h.next_at, null::bigint as seq from unnest(hints) h
            union all
            select c.priority, c.route, null, null, null, c.seq from unnest(priorities, routes, seqs) as c(priority, route, seq)
        ) k
        group by k.priority, k.route
    ) pair
$$;
