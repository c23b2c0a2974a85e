-- The events of a namespace that a filter selects, in any status: among them the `most` newest
-- ones, or the oldest; in no order. after, before: ids between these.
create or replace function headrace._matching_stored(
    namespace int, routes bigint[], since timestamptz, until timestamptz, key text, after bigint, before bigint,
    newest boolean, most int
) returns setof bigint
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_variable
begin
    return query
    (select e.id from headrace.events e
     where newest and e.namespace = _matching_stored.namespace and e.id > after and e.id < before
       and (routes is null or e.route = any (routes))
       and e.created_at >= since and e.created_at < until
       and (_matching_stored.key is null or e.key = _matching_stored.key)
     order by e.id desc limit most)
    union all
    (select e.id from headrace.events e
     where not newest and e.namespace = _matching_stored.namespace and e.id > after and e.id < before
       and (routes is null or e.route = any (routes))
       and e.created_at >= since and e.created_at < until
       and (_matching_stored.key is null or e.key = _matching_stored.key)
     order by e.id limit most)
    union all
    (select c.id from headrace.events_carried c
     where c.namespace = _matching_stored.namespace and c.id > after and c.id < before
       and (routes is null or c.route = any (routes))
       and c.created_at >= since and c.created_at < until
       and (_matching_stored.key is null or c.key = _matching_stored.key)
     order by case when newest then -c.id else c.id end limit most);
end $$;
