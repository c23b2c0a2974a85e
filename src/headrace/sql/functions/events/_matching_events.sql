-- The events of a queue that match, by the places they are in: of each place the `most` newest
-- ones, or the oldest; in no order, some perhaps twice. A delivery that ended and was brought back
-- since may be among the ended ones: _event_states tells. after, before: ids between these.
-- Each place has two queries, for `newest` and for the oldest, so that an index is read in either
-- direction only as far as needed; one ORDER BY with a CASE would read and sort all of it.
create or replace function headrace._matching_events(
    q headrace.queues, wanted headrace.wanted, after bigint, before bigint, newest boolean, most int
) returns setof bigint
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_variable
declare
    statuses constant text[] := wanted.statuses;
    ends constant text[] := array(select s from unnest(statuses) s where s in ('COMPLETED', 'CANCELLED'));
    routes constant bigint[] := wanted.routes;
    since constant timestamptz := wanted.since;
    until constant timestamptz := wanted.until;
    key constant text := wanted.key;
    orphaned_since constant timestamptz := wanted.orphaned_since;
begin
    if routes = '{}' then
        return;
    end if;

    if 'PENDING' = any (statuses) then
        if key is null then
            return query select * from headrace._matching_ready(q.id, routes, since, until, after, before,
                                                                newest, most);
        end if;
        return query
        (select k.event from headrace.keyed k
         where newest and k.queue = q.id and k.event > after and k.event < before
           and (routes is null or k.route = any (routes))
           and k.created_at >= since and k.created_at < until and (wanted.key is null or k.key = wanted.key)
         order by k.event desc limit most)
        union all
        (select k.event from headrace.keyed k
         where not newest and k.queue = q.id and k.event > after and k.event < before
           and (routes is null or k.route = any (routes))
           and k.created_at >= since and k.created_at < until and (wanted.key is null or k.key = wanted.key)
         order by k.event limit most)
        union all
        (select d.event from headrace.delayed d
         where newest and d.queue = q.id and d.event > after and d.event < before
           and (routes is null or d.route = any (routes))
           and d.created_at >= since and d.created_at < until and (wanted.key is null or d.key = wanted.key)
         order by d.event desc limit most)
        union all
        (select d.event from headrace.delayed d
         where not newest and d.queue = q.id and d.event > after and d.event < before
           and (routes is null or d.route = any (routes))
           and d.created_at >= since and d.created_at < until and (wanted.key is null or d.key = wanted.key)
         order by d.event limit most);
    end if;

    if 'PROCESSING' = any (statuses) then
        return query
        select d.event from headrace.deliveries d
        where d.queue = q.id and d.until is not null and d.event > after and d.event < before
          and d.created_at >= since and d.created_at < until
          and (orphaned_since is null or d.picked_at < orphaned_since and not exists (
              select from headrace.outcomes o
              where o.bucket = headrace._bucket(d.event) and o.queue = q.id and o.at >= orphaned_since
                and d.event = any (o.events)))
          and (routes is null and wanted.key is null or exists (
              select from headrace._stored_event(d.event, d.created_at) b
              where (routes is null or b.route = any (routes)) and (wanted.key is null or b.key = wanted.key)))
        order by case when newest then -d.event else d.event end limit most;
    end if;

    if statuses && '{FAILED,COMPLETED_WITH_ERRORS}' then
        return query
        (select x.event from headrace.dead_letters x
         where newest and x.queue = q.id and x.status = any (statuses) and x.event > after and x.event < before
           and (routes is null or x.route = any (routes)) and x.created_at >= since and x.created_at < until
           and (wanted.key is null or x.key = wanted.key)
         order by x.event desc limit most)
        union all
        (select x.event from headrace.dead_letters x
         where not newest and x.queue = q.id and x.status = any (statuses) and x.event > after and x.event < before
           and (routes is null or x.route = any (routes)) and x.created_at >= since and x.created_at < until
           and (wanted.key is null or x.key = wanted.key)
         order by x.event limit most);
    end if;

    if ends <> '{}' then
        return query select * from headrace._matching_ended(q, wanted, ends, after, before, newest, most);
    end if;
end $$;
