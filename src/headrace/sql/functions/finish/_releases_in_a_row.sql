-- The number of releases of each delivery right before an attempt, one attempt after the other; no
-- row for a delivery without any. An attempt that has saved progress begins the series anew. Read
-- from the log of a day: a count beside every delivery would burden all those that are never
-- released.
create or replace function headrace._releases_in_a_row(
    q headrace.queues, t timestamptz, events bigint[], attempts int[]
) returns table (event bigint, times int)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_nestloop = off   -- a nested loop over two arrays is quadratic
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    return query
    with item as materialized (
        select i.event, i.attempt, coalesce(p.attempt, 1) as since
        from unnest(events, attempts) as i(event, attempt)
        left join headrace.progress p on p.event = i.event and p.queue = q.id and p.event = any (events)
    ),
    released as (
        select i.event, i.attempt - m.attempt as back,
               row_number() over (partition by i.event order by m.attempt desc) as nth
        from headrace.outcomes o
        cross join lateral unnest(o.events, o.attempts) as m(event, attempt)
        join item i on i.event = m.event
        where o.bucket = any (array(select distinct headrace._bucket(e.event) from item e)) and o.queue = q.id
          and o.at > t - interval '1 day'
          and o.action = 'RELEASED' and m.attempt >= i.since and m.attempt < i.attempt
    )
    select r.event, count(*)::int from released r
    where r.back = r.nth    -- the first gap ends the row
    group by r.event;
end $$;
