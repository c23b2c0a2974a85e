-- The depth of each of these queues that is not empty, and when its oldest waiting delivery was
-- published: counted to 2,000, or to 500 where queues are many, and beyond that estimated from 250
-- pages of each place, read once for all queues.
create or replace function headrace._waiting_depths(
    queues int[]
) returns table (queue int, depth bigint, oldest_at timestamptz)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    most constant int := case when cardinality(queues) < 20 then 2000 else 500 end;
    of_ready constant float8 := headrace._sample_percentage('ready', 250);
    of_keyed constant float8 := headrace._sample_percentage('keyed', 250);
begin
    return query
    with counted as materialized (
        select w.queue, headrace._depth(w.queue, most) as depth from unnest(queues) w(queue)
    ),
    estimated as (
        select s.queue, sum(s.size)::bigint as depth
        from (
            select r.queue, sum(coalesce(cardinality(r.pack), 1)) / of_ready * 100 as size
            from headrace.ready r tablesample system (of_ready)
            where r.key is null and exists (select from counted c where c.depth >= most)
            group by r.queue
            union all
            select k.queue, count(*) / of_keyed * 100
            from headrace.keyed k tablesample system (of_keyed)
            where exists (select from counted c where c.depth >= most)
            group by k.queue
        ) s
        group by s.queue
    )
    select c.queue, case when c.depth < most then c.depth else greatest(c.depth, e.depth) end,
           headrace._oldest_ready(c.queue)
    from counted c left join estimated e on e.queue = c.queue
    where c.depth > 0;
end $$;
