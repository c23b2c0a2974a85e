-- The (priority, route) pairs of a queue that have work for a filter, at most `most` of them, the most urgent
-- priority first and in each priority in a random order, so that no route is always last.
-- A loose index scan over ready_next: it costs by the pair, not by the row (but for dead entries under a held
-- snapshot, which is why callers of poll keep its hints and sweep seldom).
create function headrace.claimable(
    namespace int,
    queue int,
    types text[],
    tags text[],
    all_tags boolean,
    most int
) returns table (priority smallint, route bigint)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    watched bigint[];
    p smallint;
    start bigint;
    working bigint[];
begin
    if types is not null or tags is not null then
        watched := headrace.matching_routes(claimable.namespace, types, tags, all_tags);
    end if;
    loop
        select r.priority into p from headrace.ready r
        where r.queue = claimable.queue and not r.suspect and (p is null or r.priority > p)
        order by r.priority limit 1;
        exit when not found or most <= 0;

        if watched is not null then
            working := array(
                select w.route from (select unnest(watched) as route order by random()) w
                where exists (
                    select from headrace.ready r
                    where r.queue = claimable.queue and r.priority = p and r.route = w.route and not r.suspect)
                limit most);
        else
            -- From a random route to the last one, then from the first one to it.
            start := ((random() - 0.5) * 1.8e19)::bigint;
            working := headrace.routes_between(claimable.queue, p, start, 9223372036854775807, most);
            if cardinality(working) < most then
                working := working || headrace.routes_between(
                    claimable.queue, p, -9223372036854775808, start - 1, most - cardinality(working));
            end if;
        end if;
        return query select p, unnest(working);
        most := most - cardinality(working);
    end loop;
end $$;
