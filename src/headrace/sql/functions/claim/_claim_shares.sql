-- Takes up to `room` deliveries of many pairs of priority and route in one statement: the oldest of
-- each, then the second of each, and so on; as _claim_route does for one. It passes by a pair from
-- the first token or pack on, which _claim_route must take.
-- heads: where it looks. places: of the pairs, those that come first if there is not room for all.
--     members   the routes of the deliveries
--     left      the places of the pairs that may have more: with a token or a pack, not visited, the rest
--     blocked   the number of those with a token or a pack
--     visited   the number of pairs that it looked at, the first of `places`
-- Concurrency: skips locked rows.
create or replace function headrace._claim_shares(
    q headrace.queues, heads headrace.hint[], places int[], room int, t timestamptz,
    inout pairs headrace.hint[], out haul headrace.haul, out members bigint[], out "left" int[], out blocked int,
    out visited int
)
language plpgsql
as $$
#variable_conflict use_column
declare
    depth int;
    firsts bigint[];    -- of each visited pair, the number of the first that it gave
begin
    -- Eight of each of 125 pairs take half the time of one of each of a thousand.
    visited := least(cardinality(places), room, greatest(64, room / 8));
    depth := ceil(room / visited::float8);
    with pair as materialized (
        select p.n, h.priority, h.route, h.low
        from unnest(places[:visited]) with ordinality as p(place, n)
        join unnest(heads) with ordinality as h(suspect, priority, route, low, next, next_at, place)
            on h.place = p.place
    ),
    picked as materialized (
        select p.n, f.ctid, f.seq, bool_and(f.is_plain) over w as is_plain, row_number() over w as nth
        from pair p
        cross join lateral (
            select r.ctid, r.seq, r.pack is null and r.key is null as is_plain from headrace.ready r
            where r.queue = q.id and not r.suspect and r.priority = p.priority and r.route = p.route and r.seq >= p.low
            order by r.seq limit depth
            for update skip locked
        ) f
        window w as (partition by p.n order by f.seq)
    ),
    chosen as materialized (
        select c.ctid, c.n, c.nth from picked c where c.is_plain order by c.nth, c.n limit room
    ),
    gone as (
        delete from headrace.ready r
        where r.ctid = any (array(select c.ctid from chosen c))
        returning r.event, r.created_at, r.route, r.seq, r.attempts, r.failures, r.ready_at
    ),
    found as materialized (
        select p.n, min(p.seq) filter (where p.is_plain and p.nth = 1) as first, count(*) = depth as has_more,
               not bool_and(p.is_plain) as is_blocked
        from picked p group by p.n
    )
    select array_agg(g.event), array_agg(g.created_at), array_agg(g.seq), array_agg(g.attempts + 1),
           array_agg(g.failures), array_agg(g.route), min(g.seq), max(coalesce(g.ready_at, g.created_at)),
           (select array_agg(f.first order by p.n) from pair p left join found f on f.n = p.n),
           array(select places[f.n] from found f where f.is_blocked order by f.n) || places[visited + 1:]
               || array(select places[f.n] from found f where f.has_more and not f.is_blocked order by f.n),
           (select count(*) from found f where f.is_blocked)
    into haul.events, haul.created, haul.seqs, haul.attempts, haul.failures, members, haul.first, haul.newest,
         firsts, "left", blocked
    from gone g;
    for n in 1..visited loop
        if firsts[n] is not null then
            pairs[places[n]] := headrace._advance_hint(pairs[places[n]], firsts[n], t);
        end if;
    end loop;
end $$;
