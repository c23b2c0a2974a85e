-- The part of _matching_events about deliveries that have ended by one of these actions. Runs under
-- its settings.
create or replace function headrace._matching_ended(
    q headrace.queues, wanted headrace.wanted, ends text[], after bigint, before bigint, newest boolean, most int
) returns setof bigint
language plpgsql stable
as $$
#variable_conflict use_variable
declare
    low bigint := after;
    high bigint := before;
    next_bucket bigint;
    chunk bigint[];
    matched bigint[];
    missing int := most;
begin
    if wanted.unfiltered then
        -- Buckets are in the order of ids, so the query reads them from one end, as many as it
        -- needs.
        return query
        (select m.event from headrace.outcomes o cross join lateral unnest(o.events) as m(event)
         where newest and o.queue = q.id and o.action = any (ends)
           and o.bucket between headrace._bucket(after) and headrace._bucket(before)
           and m.event > after and m.event < before
         order by o.bucket desc, m.event desc limit most)
        union all
        (select m.event from headrace.outcomes o cross join lateral unnest(o.events) as m(event)
         where not newest and o.queue = q.id and o.action = any (ends)
           and o.bucket between headrace._bucket(after) and headrace._bucket(before)
           and m.event > after and m.event < before
         order by o.bucket, m.event limit most);
    else
        -- Two streams in the order of ids, events that the filter selects and buckets with
        -- outcomes: each skips ranges for which the other has nothing.
        loop
            select case when newest then b.highest else b.lowest end into next_bucket
            from (select (select o.bucket from headrace.outcomes o
                          where newest and o.queue = q.id and o.action = any (ends)
                            and o.bucket between headrace._bucket(low) and headrace._bucket(high)
                          order by o.bucket desc limit 1) as highest,
                         (select o.bucket from headrace.outcomes o
                          where not newest and o.queue = q.id and o.action = any (ends)
                            and o.bucket between headrace._bucket(low) and headrace._bucket(high)
                          order by o.bucket limit 1) as lowest) b;
            exit when next_bucket is null;
            if newest then
                high := least(high, headrace._id_at(next_bucket + 1 << 10));
            else
                low := greatest(low, headrace._id_at(next_bucket << 10) - 1);
            end if;
            chunk := array(
                select s from headrace._matching_stored(q.namespace, wanted.routes, wanted.since, wanted.until,
                                                        wanted.key, low, high, newest, 1000) s
                order by case when newest then -s else s end limit 1000);
            exit when chunk = '{}';
            matched := array(
                select distinct m.event
                from headrace.outcomes o cross join lateral unnest(o.events) as m(event)
                join unnest(chunk) as c(id) on c.id = m.event
                where o.bucket = any (array(select distinct headrace._bucket(c) from unnest(chunk) c))
                  and o.queue = q.id and o.action = any (ends));
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
