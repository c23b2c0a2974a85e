-- The pairs of priority and route of a queue that have work for a claim with this filter, the pairs
-- of suspects last. hints: those of the claim before.
--     heads     the same pairs, beginning with the first row that each has now: where this claim
--               looks. `pairs` keep the bounds of the hints, which suit the next claims, too
create or replace function headrace._sweep(
    q headrace.queues, types text[], tags text[], all_tags boolean, most int, hints headrace.hint[],
    out pairs headrace.hint[], out heads headrace.hint[]
)
language plpgsql
as $$
declare
    watched bigint[];
    calm record;
    suspects record;
begin
    if types is not null or tags is not null then
        watched := headrace._filtered_routes_with_work(q, types, tags, all_tags);
    end if;
    calm := headrace._routes_with_work(q, false, watched, most, hints);
    suspects := headrace._routes_with_work(q, true, watched, 10, hints);
    pairs := calm.pairs || suspects.pairs;
    heads := array(
        select row(p.suspect, p.priority, p.route, f.first, null, null)::headrace.hint
        from unnest(pairs) with ordinality as p(suspect, priority, route, low, next, next_at, n)
        join unnest(calm.firsts || suspects.firsts) with ordinality as f(first, n) on f.n = p.n
        order by p.n);
end $$;
