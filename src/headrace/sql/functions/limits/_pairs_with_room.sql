-- The pairs of priority and route of a queue that have work and room under its limits, as
-- _routes_with_work finds those that have work. Whole pairs are passed by: a full one costs a
-- probe, whatever waits in it. Nothing is locked, so the room may be gone a moment later: see
-- _lock_limit_groups.
--     fair_by   1,000 pairs of a priority are looked at, so that groups that have few of them are
--               found beside one that has many
--     aging     each priority is looked at
-- look_at: when a rate lets the first of those start that were passed by; null: nothing is known.
create or replace function headrace._pairs_with_room(
    q headrace.queues, suspect boolean, watched bigint[], most int, hints headrace.hint[], t timestamptz,
    out pairs headrace.hint[], out look_at timestamptz
)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    urgency smallint := -1;
    wanted int;         -- pairs of this priority
    enough int;         -- that are looked at
    place bigint[];
    chunk bigint[];
    found_here bigint[];
    open record;
begin
    pairs := '{}';
    loop
        select r.priority into urgency from headrace.ready r
        where r.queue = q.id and r.suspect = _pairs_with_room.suspect and r.priority > urgency
        order by r.priority limit 1;
        exit when not found or q.aging is null and cardinality(pairs) >= most;
        wanted := case when q.aging is null then most - cardinality(pairs) else most end;
        enough := case when q.fair_by is null then wanted else greatest(wanted, 1000) end;
        found_here := '{}';
        place := null;
        loop
            select n.position, n.routes into place, chunk from headrace._next_routes(
                q.id, _pairs_with_room.suspect, urgency, watched, greatest(enough, 64), place) n;
            exit when chunk is null;
            chunk := array(select c.route from unnest(chunk) as c(route) order by random());
            while chunk <> '{}' and cardinality(found_here) < enough loop   -- not all at once: few may be wanted
                open := headrace._open_routes(q, chunk[:enough - cardinality(found_here) + 8], t);
                chunk := chunk[enough - cardinality(found_here) + 9:];
                found_here := found_here || open.routes;
                look_at := least(look_at, open.look_at);
            end loop;
            exit when cardinality(found_here) >= enough;
        end loop;
        continue when found_here = '{}';
        found_here := array(
            select f.route from (
                -- one of each group, then the second of each …
                select u.route, row_number() over (partition by u.value order by random()) as nth
                from unnest(found_here, headrace._fair_values(q, found_here)) as u(route, value)
            ) f order by case when q.fair_by is not null then f.nth end, random() limit wanted);
        pairs := pairs || array(
            select row(_pairs_with_room.suspect, urgency, u.route, coalesce(h.low, 0), h.next, h.next_at)::headrace.hint
            from unnest(found_here) as u(route)
            left join unnest(hints) h on h.suspect = _pairs_with_room.suspect and h.priority = urgency
                and h.route = u.route);
    end loop;
end $$;
