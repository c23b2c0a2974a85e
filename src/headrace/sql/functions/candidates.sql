-- The events of a queue that are wanted, by the places they are in: of each place the `most` newest ones, or the oldest; in no
-- order, some perhaps twice. What has ended and was brought back since may be among those that ended: whoever must know asks
-- headrace.standing. after, before: ids between these.
create or replace function headrace.candidates(
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
    low bigint := after;
    high bigint := before;
    next_bucket bigint;
    chunk bigint[];
    matched bigint[];
    missing int := most;
begin
    if routes = '{}' then
        return;
    end if;

    if 'PENDING' = any (statuses) then
        if key is null then
            return query select * from headrace.line(q.id, routes, since, until, after, before, newest, most);
        end if;
        return query
        (select k.event from headrace.keyed k
         where newest and k.queue = q.id and k.event > after and k.event < before and (routes is null or k.route = any (routes))
           and k.created_at >= since and k.created_at < until and (wanted.key is null or k.key = wanted.key)
         order by k.event desc limit most)
        union all
        (select k.event from headrace.keyed k
         where not newest and k.queue = q.id and k.event > after and k.event < before and (routes is null or k.route = any (routes))
           and k.created_at >= since and k.created_at < until and (wanted.key is null or k.key = wanted.key)
         order by k.event limit most)
        union all
        (select d.event from headrace.delayed d
         where newest and d.queue = q.id and d.event > after and d.event < before and (routes is null or d.route = any (routes))
           and d.created_at >= since and d.created_at < until and (wanted.key is null or d.key = wanted.key)
         order by d.event desc limit most)
        union all
        (select d.event from headrace.delayed d
         where not newest and d.queue = q.id and d.event > after and d.event < before and (routes is null or d.route = any (routes))
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
              where o.bucket = d.event >> 10 and o.queue = q.id and o.at >= orphaned_since and d.event = any (o.events)))
          and (routes is null and wanted.key is null or exists (
              select from headrace.body(d.event, d.created_at) b
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

    if ends <> '{}' and wanted.unfiltered then
        -- Buckets are in the order of ids, so they are read from one end, as many as it takes.
        return query
        (select m.event from headrace.outcomes o cross join lateral unnest(o.events) as m(event)
         where newest and o.queue = q.id and o.action = any (ends) and o.bucket between after >> 10 and before >> 10
           and m.event > after and m.event < before
         order by o.bucket desc, m.event desc limit most)
        union all
        (select m.event from headrace.outcomes o cross join lateral unnest(o.events) as m(event)
         where not newest and o.queue = q.id and o.action = any (ends) and o.bucket between after >> 10 and before >> 10
           and m.event > after and m.event < before
         order by o.bucket, m.event limit most);
    elsif ends <> '{}' then
        -- Two streams in the order of ids, events that the filter selects and buckets in which something ended: each skips
        -- what the other has nothing for.
        loop
            select case when newest then b.highest else b.lowest end into next_bucket
            from (select (select o.bucket from headrace.outcomes o
                          where newest and o.queue = q.id and o.action = any (ends) and o.bucket between low >> 10 and high >> 10
                          order by o.bucket desc limit 1) as highest,
                         (select o.bucket from headrace.outcomes o
                          where not newest and o.queue = q.id and o.action = any (ends) and o.bucket between low >> 10 and high >> 10
                          order by o.bucket limit 1) as lowest) b;
            exit when next_bucket is null;
            if newest then
                high := least(high, next_bucket + 1 << 10);
            else
                low := greatest(low, (next_bucket << 10) - 1);
            end if;
            chunk := array(select s from headrace.stored(q.namespace, routes, since, until, key, low, high, newest, 1000) s
                           order by case when newest then -s else s end limit 1000);
            exit when chunk = '{}';
            matched := array(
                select distinct m.event
                from headrace.outcomes o cross join lateral unnest(o.events) as m(event) join unnest(chunk) as c(id) on c.id = m.event
                where o.bucket = any (array(select distinct c >> 10 from unnest(chunk) c)) and o.queue = q.id and o.action = any (ends));
            return query select unnest(matched);
            missing := missing - cardinality(matched);
            exit when missing <= 0;
            if newest then
                high := chunk[cardinality(chunk)];
            else
                low := chunk[cardinality(chunk)];
            end if;
        end loop;
    end if;
end $$;
