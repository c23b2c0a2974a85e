-- The events in a queue's ready that a filter selects: among them, if there are as many, the `most`
-- newest ones, or the oldest; in no order. routes: only these; null: all. after, before: ids
-- between these. The order of ready is not that of ids, but within each pair of priority and route
-- it nearly is. The function therefore reads the ends of all pairs, and deliveries that have come
-- back by an index of their own. With more than 1,000 pairs it reads all waiting deliveries.
create or replace function headrace._matching_ready(
    queue int, routes bigint[], since timestamptz, until timestamptz, after bigint, before bigint,
    newest boolean, most int
) returns setof bigint
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_variable
declare
    pair record;
    waiting record;
    members int;
    taken int;
    block bigint;   -- packs of one block of 128 places may overlap: they are read together
begin
    if (select count(*) from headrace._ready_routes(queue, 1001)) > 1000 then
        return query
        select m.event
        from headrace.ready r cross join lateral unnest(coalesce(r.pack, array[r.event])) as m(event)
        where r.queue = _matching_ready.queue and r.key is null and (routes is null or r.route = any (routes))
          and r.created_at >= since and r.created_at < until and m.event > after and m.event < before
        order by case when newest then -m.event else m.event end limit most;
        return;
    end if;

    return query
    (select r.event from headrace.ready r
     where newest and r.queue = _matching_ready.queue and r.seq <> r.event and r.key is null and r.event > after
       and r.event < before
       and (routes is null or r.route = any (routes)) and r.created_at >= since and r.created_at < until
     order by r.event desc limit most)
    union all
    (select r.event from headrace.ready r
     where not newest and r.queue = _matching_ready.queue and r.seq <> r.event and r.key is null and r.event > after
       and r.event < before
       and (routes is null or r.route = any (routes)) and r.created_at >= since and r.created_at < until
     order by r.event limit most);

    for pair in
        select p.priority, p.route from headrace._ready_routes(queue, 1000) p
        where not p.suspect and (routes is null or p.route = any (routes))
    loop
        taken := 0;
        for waiting in
            (select r.event, r.pack from headrace.ready r
             where newest and r.queue = _matching_ready.queue and not r.suspect and r.priority = pair.priority
               and r.route = pair.route
               and r.seq >= headrace._first_of_pack(after) and r.seq < before and r.seq = r.event
               and r.created_at >= since and r.created_at < until
             order by r.seq desc)
            union all
            (select r.event, r.pack from headrace.ready r
             where not newest and r.queue = _matching_ready.queue and not r.suspect and r.priority = pair.priority
               and r.route = pair.route
               and r.seq >= headrace._first_of_pack(after) and r.seq < before and r.seq = r.event
               and r.created_at >= since and r.created_at < until
             order by r.seq)
        loop
            exit when taken >= most and headrace._pack(waiting.event) <> block;
            block := headrace._pack(waiting.event);
            if waiting.pack is not null then
                return query select m from unnest(waiting.pack) m where m > after and m < before;
                get diagnostics members = row_count;
                taken := taken + members;
            elsif waiting.event > after then
                return next waiting.event;
                taken := taken + 1;
            end if;
        end loop;
    end loop;
end $$;
