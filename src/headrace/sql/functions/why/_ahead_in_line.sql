-- How many deliveries are claimed before a waiting one, counted to `most`, and since when it has been
-- ready. More urgent ones go first. Of the same priority, in fair order, as many of every other
-- type and tags as go first of its own, because they take turns; in strict order those with a lower
-- number. A key with a delivery whose turn it may be counts as one: its token.
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
    pair record;
    size bigint;
begin
    select e.route into its from headrace._stored_event(s.id, s.created_at) e;
    select r.* into own from headrace.ready r
    where r.queue = q.id and not r.suspect and r.priority = s.priority and r.route = its
      and r.seq between s.id >> 7 << 7 and s.id and r.key is null and (r.event = s.id or s.id = any (r.pack));
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
    for pair in
        select p.priority, p.route from headrace._ready_routes(q.id, 1000) p
        where not p.suspect and (p.priority < s.priority or p.priority = s.priority and p.route <> its)
    loop
        exit when ahead >= most;
        if pair.priority < s.priority then
            size := most;
        elsif q."order" = 'oldest' then
            size := most;
        else
            size := before + 1;
        end if;
        ahead := ahead + least(size, (
            select coalesce(sum(o.size), 0)
            from (select coalesce(cardinality(r.pack), 1) as size from headrace.ready r
                  where r.queue = q.id and not r.suspect and r.priority = pair.priority and r.route = pair.route
                    and (q."order" = 'fair' or pair.priority < s.priority or r.seq < own.seq)
                  order by r.seq limit size) o));
    end loop;
    ahead := least(ahead, most);
end $$;
