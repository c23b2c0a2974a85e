-- The types of a namespace that wait in a queue while no live node handles them: the number of
-- ready deliveries, counted to 10,000 (an ordering key counts as one, because one at a time can be
-- claimed), when the oldest of them was published, and, where such events are dead-lettered, since
-- when the type has been seen unhandled. The function reads at most 10,000 pairs of priority and
-- route per queue. Raises QU010.
create or replace function headrace.unhandled_types(namespace text)
returns table (queue text, type text, deliveries bigint, oldest_at timestamptz, since timestamptz)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    living constant uuid[] := headrace._alive_nodes(headrace._now());
    q headrace.queues;
begin
    perform headrace._check_access(unhandled_types.namespace);
    if not exists (select from headrace.namespaces n where n.name = unhandled_types.namespace) then
        perform headrace._raise_no_such_queue(unhandled_types.namespace, 'main');
    end if;
    for q in select o.* from headrace.queues o where o.space = unhandled_types.namespace order by o.name loop
        return query
        select q.name, u.type, sum(w.size)::bigint, min(w.created_at), (
            select s.since from headrace.unhandled s where s.queue = q.id and s.type = u.type)
        from headrace._unhandled_in_queue(q, living) u
        cross join lateral (
            select p.suspect, p.priority, p.route from headrace._ready_routes(q.id, 10000) p
            where p.route = any (u.routes)
        ) p
        cross join lateral (
            (select coalesce(cardinality(r.pack), 1) as size, r.created_at from headrace.ready r
             where r.queue = q.id and r.suspect = p.suspect and r.priority = p.priority and r.route = p.route
               and r.key is null
             order by r.seq limit 10000)
            union all
            (select 1, k.created_at
             from (select distinct r.key from headrace.ready r
                   where r.queue = q.id and r.suspect = p.suspect and r.priority = p.priority and r.route = p.route
                     and r.key is not null
                   limit 10000) o
             cross join lateral (
                 select k.* from headrace.keyed k where k.queue = q.id and k.key = o.key order by k.event limit 1
             ) k
             where k.route = p.route and k.priority = p.priority and k.suspect = p.suspect
               and not exists (select from headrace.active a where a.queue = q.id and a.key = o.key))
        ) w
        group by u.type
        order by u.type;
    end loop;
end $$;
