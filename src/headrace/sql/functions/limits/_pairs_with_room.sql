-- The pairs of priority and route of a queue that have work and room under its limits, as
-- _routes_with_work finds those that have work. Whole pairs are passed by: a full one costs a
-- probe, whatever waits in it. Nothing is locked, so the room may be gone a moment later: see
-- _lock_limit_groups. Pairs of one group may be more than its room: as many others come with them.
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
    sure int := 0;      -- pairs from which a delivery can surely start: those of one group share its room
    wanted int;         -- sure pairs of this priority
    enough int;         -- sure pairs that are looked at
    seen int;           -- of them, so far
    size int;           -- routes that are looked at next
    place bigint[];
    chunk bigint[];
    here record;        -- the pairs of this priority
    open record;
    groups text[] := '{}';
    rooms int[] := '{}';
begin
    pairs := '{}';
    loop
        select r.priority into urgency from headrace.ready r
        where r.queue = q.id and r.suspect = _pairs_with_room.suspect and r.priority > urgency
        order by r.priority limit 1;
        exit when not found or q.aging is null and sure >= most;
        wanted := case when q.aging is null then most - sure else most end;
        enough := case when q.fair_by is null then wanted else greatest(wanted, 1000) end;
        select '{}'::bigint[] as routes, '{}'::text[] as groups, '{}'::int[] as rooms into here;
        seen := 0;
        size := enough + 8;     -- not all at once: few may be wanted; but twice as many each time
        place := null;
        loop
            select n.position, n.routes into place, chunk from headrace._next_routes(
                q.id, _pairs_with_room.suspect, urgency, watched, greatest(size, 64), place) n;
            exit when chunk is null;
            chunk := array(select c.route from unnest(chunk) as c(route) order by random());
            while chunk <> '{}' and seen < enough loop
                open := headrace._open_routes(q, chunk[:size], t);
                chunk := chunk[size + 1:];
                size := least(2 * size, 1000);
                -- Few more of a group than it has room for: there may be thousands, and each is a hint.
                select coalesce(array_agg(u.route), '{}'), coalesce(array_agg(u.name), '{}'),
                       coalesce(array_agg(u.room), '{}')
                into here.routes, here.groups, here.rooms
                from (
                    select n.*, row_number() over (partition by n.name) as nth
                    from unnest(here.routes || open.routes, here.groups || open.groups, here.rooms || open.rooms)
                        as n(route, name, room)
                ) u
                where u.name is null or u.nth <= case when q.fair_by is null then u.room + 8
                                                      else greatest(u.room, 1000) end;
                look_at := least(look_at, open.look_at);
                seen := headrace._sure_starts(groups || here.groups, rooms || here.rooms) - sure;
            end loop;
            exit when seen >= enough;
        end loop;
        continue when here.routes = '{}';
        select array_agg(f.route), array_agg(f.name), array_agg(f.room) into here.routes, here.groups, here.rooms from (
            select n.* from (
                -- one of each group, then the second of each …
                select u.*, row_number() over (partition by u.value order by random()) as nth
                from unnest(here.routes, here.groups, here.rooms, headrace._fair_values(q, here.routes))
                    as u(route, name, room, value)
            ) n
            order by case when q.fair_by is not null then n.nth end, random()
            limit wanted + cardinality(here.routes) - seen) f;
        pairs := pairs || array(
            select row(_pairs_with_room.suspect, urgency, u.route, coalesce(h.low, 0), h.next, h.next_at)::headrace.hint
            from unnest(here.routes) as u(route)
            left join unnest(hints) h on h.suspect = _pairs_with_room.suspect and h.priority = urgency
                and h.route = u.route);
        groups := groups || here.groups;
        rooms := rooms || here.rooms;
        sure := headrace._sure_starts(groups, rooms);
    end loop;
end $$;
