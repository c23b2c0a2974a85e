-- How many of several pairs surely have a delivery that may start, if each pair has one: those of one
-- group share its room. groups, rooms: see _open_routes.
create or replace function headrace._sure_starts(groups text[], rooms int[]) returns int
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(sum(case when g.name is null then g.size else least(g.room, g.size) end), 0)::int
    from (
        select u.name, min(u.room) as room, count(*) as size from unnest(groups, rooms) as u(name, room) group by u.name
    ) g
$$;
