-- Takes the next deliveries of a queue of strict order that has limits, as _claim_in_strict_order
-- does, and as _claim_grouped does returns the groups that are locked. A delivery whose group is
-- full is passed by, whatever its place. The claim takes as many at a time as the fullest group
-- that is open has room for.
create or replace function headrace._claim_limited_in_strict_order(
    q headrace.queues, types text[], tags text[], all_tags boolean, most int, limited int, suspects boolean,
    worker text, t timestamptz,
    out pairs headrace.hint[], out events bigint[], out created timestamptz[], out seqs bigint[], out routes bigint[],
    out priorities smallint[], out attempts int[], out failures smallint[], out crashes smallint[], out keys text[],
    out newest timestamptz, out is_suspect boolean, out chunks int,
    out members headrace.membership[], out look_at timestamptz
)
language plpgsql
as $$
#variable_conflict use_column
declare
    watched bigint[]; open bigint[]; locked record; part headrace.ready[]; taken headrace.ready[] := '{}';
    bound int := least(limited, most); room int; naps int := 0;
    ticked boolean := false;
begin
    chunks := 1;
    loop
        perform headrace._release_limited_keys(t, q.id);
        watched := headrace._filtered_routes_with_work(q, types, tags, all_tags);
        members := headrace._limited_groups(q, watched);
        locked := headrace._lock_limit_groups(q, members, t);
        newest := locked.at;
        look_at := least(locked.look_at, (select min(k.due_at) from headrace.limit_keys k where k.queue = q.id));
        while cardinality(taken) < most loop
            select array_agg(w.route), min(m.room) into open, room
            from unnest(watched) as w(route)
            left join (select m.route, least(min(locked.rooms[m.n]), bound) as room from unnest(members) m
                       group by m.route) m on m.route = w.route
            where m.room is null or m.room > 0;
            if open is null and bound <= 0 then
                look_at := t;   -- at once, when the worker can start one
            end if;
            exit when open is null;
            part := headrace._claim_strict(q, open, least(most - cardinality(taken), room),
                                           suspects and taken = '{}', worker);
            exit when part = '{}';
            taken := taken || part;
            select bound - count(*) filter (where exists (select from unnest(members) m where m.route = p.route))
            into bound from unnest(part) p;
            locked.rooms := array(
                select r.room - (select count(*) from unnest(part) p join unnest(members) m on m.route = p.route
                                 where m.n = r.n)::int
                from unnest(locked.rooms) with ordinality as r(room, n) order by r.n);
            exit when part[1].suspect;
        end loop;
        exit when taken <> '{}';
        if locked.is_busy and naps < 10 then
            naps := naps + 1;
            perform pg_sleep(0.002);
            continue;
        end if;
        exit when ticked or not headrace._tick_for_claim();
        ticked := true;
    end loop;
    select array_agg(o.event order by o.n), array_agg(o.created_at order by o.n), array_agg(o.event order by o.n),
           array_agg(o.route order by o.n), array_agg(o.priority order by o.n), array_agg(o.attempts + 1 order by o.n),
           array_agg(o.failures order by o.n), array_agg(o.crashes order by o.n), array_agg(o.key order by o.n),
           greatest(newest, max(coalesce(o.ready_at, o.created_at))), coalesce(bool_or(o.suspect), false)
    into events, created, seqs, routes, priorities, attempts, failures, crashes, keys, newest, is_suspect
    from (select o.*, row_number() over (order by o.priority, o.event) as n from unnest(taken) o) o;
    if array_remove(keys, null) = '{}' then
        keys := null;
    end if;
end $$;
