-- The pairs of priority and route of a queue that have work, suspects or others, at most `most` of
-- them: the most urgent priority first, within a priority in a random order, so that no route is
-- always last. watched: only these routes; null: all. A pair keeps its bounds from the caller's
-- hints. A loose index scan: it costs by the pair, not by the delivery (but for dead entries under
-- a held snapshot, which is why callers of poll keep its hints and sweep seldom).
create or replace function headrace._routes_with_work(
    q headrace.queues, suspect boolean, watched bigint[], most int, hints headrace.hint[]
) returns headrace.hint[]
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_nestloop = on
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    pairs headrace.hint[] := '{}';
    urgency smallint := -1;
    start bigint;
    enough int;
    routes bigint[];
begin
    loop
        select r.priority into urgency from headrace.ready r
        where r.queue = q.id and r.suspect = _routes_with_work.suspect and r.priority > urgency
        order by r.priority limit 1;
        exit when not found or cardinality(pairs) >= most;
        if watched is not null then
            routes := array(
                select w.route from (select u.route from unnest(watched) as u(route) order by random()) w
                -- a scalar subquery: as an EXISTS it may become a join over the whole queue
                where (select true from headrace.ready r
                       where r.queue = q.id and r.suspect = _routes_with_work.suspect and r.priority = urgency
                         and r.route = w.route
                       limit 1)
                limit most - cardinality(pairs));
        else
            -- From a random point to the last route, then from the first one to it. The scan reads
            -- some more than wanted: taking just the next one would favour routes with a wide gap
            -- before them.
            start := ((random() - 0.5) * 1.8e19)::bigint;
            enough := greatest(most - cardinality(pairs), 64);
            routes := headrace._routes_between(q.id, _routes_with_work.suspect, urgency, start,
                                               9223372036854775807, enough);
            if cardinality(routes) < enough then
                routes := routes || headrace._routes_between(
                    q.id, _routes_with_work.suspect, urgency, -9223372036854775808, start - 1,
                    enough - cardinality(routes));
            end if;
            if cardinality(routes) > 1 then
                routes := array(select u.route from unnest(routes) as u(route) order by random()
                                limit most - cardinality(pairs));
            end if;
        end if;
        pairs := pairs || array(
            select row(_routes_with_work.suspect, urgency, r.route, 0, null, null)::headrace.hint
            from unnest(routes) r(route));
    end loop;
    if cardinality(pairs) > 0 and cardinality(hints) > 0 then
        pairs := array(
            select row(p.suspect, p.priority, p.route, coalesce(h.low, 0), h.next, h.next_at)::headrace.hint
            from unnest(pairs) with ordinality as p(suspect, priority, route, low, next, next_at, n)
            left join unnest(hints) h on h.suspect = p.suspect and h.priority = p.priority and h.route = p.route
            order by p.n);
    end if;
    return pairs;
end $$;
