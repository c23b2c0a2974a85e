-- The queues in which something waits to be claimed, above the id `after`, at most `most`, in the
-- order of their ids: loose index scans, whose cost grows with the queues and not with the
-- deliveries.
create or replace function headrace._waiting_queues(after int default 0, most int default null) returns setof int
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
    with recursive ready as (
        (select r.queue from headrace.ready r where r.queue > after order by r.queue limit 1)
        union all
        select n.queue
        from ready w
        cross join lateral (select r.queue from headrace.ready r where r.queue > w.queue order by r.queue limit 1) n
    ),
    keyed as (
        (select k.queue from headrace.keyed k where k.queue > after order by k.queue limit 1)
        union all
        select n.queue
        from keyed w
        cross join lateral (select k.queue from headrace.keyed k where k.queue > w.queue order by k.queue limit 1) n
    )
    (select queue from ready limit most) union (select queue from keyed limit most) order by queue limit most
$$;
