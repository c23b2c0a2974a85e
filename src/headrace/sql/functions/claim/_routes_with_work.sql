-- The pairs of priority and route of a queue that have work, suspects or others, at most `most` of
-- them: the most urgent priority first, within a priority in a random order, so that no route is
-- always last. watched: only these routes; null: all. A pair keeps its bounds from the caller's
-- hints.
--     firsts   the number of the first row of each pair
-- A loose index scan: it costs by the pair, not by the delivery. But under a held snapshot it walks
-- over the dead entries before the first row of each, once: the caller uses `firsts` so that it need
-- not do so again, keeps poll's hints, and sweeps seldom.
create or replace function headrace._routes_with_work(
    q headrace.queues, suspect boolean, watched bigint[], most int, hints headrace.hint[],
    out pairs headrace.hint[], out firsts bigint[]
)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_nestloop = off   -- a nested loop over two arrays is quadratic
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    head headrace.hint;     -- the first of a priority; its low: the number of the row
    start bigint;
    last bigint;
    enough int;
    wanted int;
    part record;
    routes bigint[];
    seqs bigint[];
begin
    pairs := '{}'; firsts := '{}';
    head.priority := -1;
    loop
        select r.priority, r.route, r.seq into head.priority, head.route, head.low from headrace.ready r
        where r.queue = q.id and r.suspect = _routes_with_work.suspect
          and r.priority > head.priority
        order by r.priority, r.route, r.seq limit 1;
        exit when not found or cardinality(pairs) >= most;
        wanted := most - cardinality(pairs);
        if watched is not null then
            select array_agg(w.route), array_agg(w.seq) into routes, seqs
            from (
                select u.route, u.seq
                from (
                    select w.route,
                           (select r.seq from headrace.ready r
                            where r.queue = q.id and r.suspect = _routes_with_work.suspect
                              and r.priority = head.priority and r.route = w.route
                            order by r.seq limit 1) as seq
                    from (select n.route from unnest(watched) as n(route) order by random()) w
                    offset 0
                ) u
                where u.seq is not null
                limit wanted) w;
        else
            -- From a random point to the last route, then from the first one to it. The scan reads
            -- some more than wanted: taking just the next one would favour routes with a wide gap
            -- before them.
            start := ((random() - 0.5) * 1.8e19)::bigint;
            enough := greatest(wanted, 64);
            last := 9223372036854775807; routes := '{}'; seqs := '{}';
            if start > head.route then
                part := headrace._routes_between(q.id, _routes_with_work.suspect, head.priority, start, last, enough);
                routes := part.routes; seqs := part.firsts;
                last := start - 1;
            end if;
            if cardinality(routes) < enough then
                routes := routes || head.route; seqs := seqs || head.low;
            end if;
            if cardinality(routes) < enough and head.route < last then
                part := headrace._routes_between(q.id, _routes_with_work.suspect, head.priority, head.route + 1, last,
                                                 enough - cardinality(routes));
                routes := routes || part.routes; seqs := seqs || part.firsts;
            end if;
            if cardinality(routes) > 1 then
                select array_agg(u.route), array_agg(u.seq) into routes, seqs
                from (select * from unnest(routes, seqs) as u(route, seq) order by random() limit wanted) u;
            end if;
        end if;
        pairs := pairs || array(
            select row(_routes_with_work.suspect, head.priority, r.route, 0, null, null)::headrace.hint
            from unnest(routes) r(route));
        firsts := firsts || coalesce(seqs, '{}');
    end loop;
    if cardinality(pairs) > 0 and cardinality(hints) > 0 then
        pairs := array(
            select row(p.suspect, p.priority, p.route, coalesce(h.low, 0), h.next, h.next_at)::headrace.hint
            from unnest(pairs) with ordinality as p(suspect, priority, route, low, next, next_at, n)
            left join unnest(hints) h on h.suspect = p.suspect and h.priority = p.priority and h.route = p.route
            order by p.n);
    end if;
end $$;
