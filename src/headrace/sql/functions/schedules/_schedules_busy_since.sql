-- The time since when ticks have had more schedules due than they could fire, without a minute's
-- pause; null: ticks keep up. Instants that came due since, or in the minute before, are late
-- because ticks were busy, and not because no tick ran: see _fire_due.
create or replace function headrace._schedules_busy_since(t timestamptz) returns timestamptz
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select max(b.at) filter (where b.pause is null or b.pause > interval '1 minute')
    from (select n.at, n.at - lag(n.at) over (order by n.at) as pause from headrace.busy_ticks n where n.at <= t) b
    having max(b.at) >= t - interval '1 minute'
$$;
