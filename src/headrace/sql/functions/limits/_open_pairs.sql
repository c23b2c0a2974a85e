-- The pairs of a claim, without those of suspects (after the first `calm`) that have no room left:
-- in their place there is no pair.
create or replace function headrace._open_pairs(
    pairs headrace.hint[], calm int, members headrace.membership[], rooms int[]
) returns headrace.hint[]
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    return (
        select array_agg(case when p.n <= calm
                              or not exists (select from unnest(members) m where m.route = p.route and rooms[m.n] <= 0)
                         then row(p.suspect, p.priority, p.route, p.low, p.next, p.next_at)::headrace.hint end
                         order by p.n)
        from unnest(pairs) with ordinality as p(suspect, priority, route, low, next, next_at, n)
    );
end $$;
