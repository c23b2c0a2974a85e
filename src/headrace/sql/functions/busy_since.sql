-- Since when ticks have had more schedules due than they could fire, without a minute's pause; null: they have none left over.
-- What came due since, or in the minute before, is late because there was much to do, and not because all were down: see fire.
create or replace function headrace.busy_since(t timestamptz) returns timestamptz
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select max(b.at) filter (where b.pause is null or b.pause > interval '1 minute')
    from (select n.at, n.at - lag(n.at) over (order by n.at) as pause from headrace.busy_ticks n where n.at <= t) b
    having max(b.at) >= t - interval '1 minute'
$$;
