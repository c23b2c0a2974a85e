-- How many deliveries are claimed before a waiting one, counted to `most`, and since when it has been
-- ready. More urgent ones go first. Of the same priority, in fair order, as many of every other
-- type and tags (under fair_by: of every other group) as go first of its own, because they take
-- turns; in strict order those with a lower number. Of a group with a limit that is not its own as
-- many as have room now. A key with a delivery whose turn it may be counts as one: its token.
create or replace function headrace._ahead_in_line(
    q headrace.queues, s headrace.shown, most int, out since timestamptz, out ahead bigint
)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    its bigint;     -- its route
    own headrace.ready;
    before bigint;  -- of its own pair
    in_group bigint;    -- of its own group
    pair record;
    value text;         -- the group of a pair
    of_value bigint := 0;
    rooms int[];        -- what is left in groups with limits, by their numbers
    size bigint;
begin
    select e.route into its from headrace._stored_event(s.id, s.created_at) e;
    select r.* into own from headrace.ready r
    where r.queue = q.id and not r.suspect and r.priority = s.priority and r.route = its
      and r.seq between headrace._first_of_pack(s.id) and s.id
      and r.key is null and (r.event = s.id or s.id = any (r.pack));
    if not found then
        select r.* into own from headrace.ready r
        where r.event = s.id and r.queue = q.id and r.seq <> r.event and r.key is null;
    end if;
    if not found then
        select r.* into own from headrace.ready r
        where r.queue = q.id and r.priority = s.priority and r.route = its and r.key = s.key
        order by r.seq limit 1;
    end if;
    since := coalesce(own.ready_at, own.created_at);
    before := coalesce(array_position(own.pack, s.id) - 1, 0) + (
        select coalesce(sum(o.size), 0)
        from (select coalesce(cardinality(r.pack), 1) as size from headrace.ready r
              where r.queue = q.id and not r.suspect and r.priority = s.priority and r.route = its and r.seq < own.seq
              order by r.seq limit most) o);
    ahead := before;
    in_group := before;
    for pair in select * from headrace._others_in_line(q, s.priority, its) loop
        exit when ahead >= most;
        if pair.value is distinct from value then
            value := pair.value;
            of_value := 0;
        end if;
        size := case when pair.priority < s.priority or q."order" = 'oldest' then most
                     when not pair.takes_turns then before + 1
                     else in_group + 1 - of_value end;
        for i in 1 .. cardinality(pair.limits) loop
            size := least(size, coalesce(rooms[pair.limits[i]], pair.rooms[i]));
        end loop;
        continue when size <= 0;
        size := least(size, (
            select coalesce(sum(o.size), 0)
            from (select coalesce(cardinality(r.pack), 1) as size from headrace.ready r
                  where r.queue = q.id and not r.suspect and r.priority = pair.priority and r.route = pair.route
                    and (q."order" = 'fair' or pair.priority < s.priority or r.seq < own.seq)
                  order by r.seq limit size) o));
        ahead := ahead + size;
        of_value := of_value + size;
        if pair.priority = s.priority and not pair.takes_turns then
            in_group := in_group + size;
        end if;
        for i in 1 .. cardinality(pair.limits) loop
            rooms[pair.limits[i]] := coalesce(rooms[pair.limits[i]], pair.rooms[i]) - size;
        end loop;
    end loop;
    ahead := least(ahead, most);
end $$;
