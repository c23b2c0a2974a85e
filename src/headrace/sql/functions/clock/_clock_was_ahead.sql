-- Whether rows are dated by a clock that was ahead while no tick read it, so that no tick has
-- noticed: see _read_clock. Looks at small tables, and at the hundred leases that end last.
create or replace function headrace._clock_was_ahead(t timestamptz) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
    select exists (
            select from (select l.picked_at, l.extended_at from headrace.leases l where l.until > t
                         order by l.until desc limit 100) l
            where coalesce(l.extended_at, l.picked_at) > t + interval '1 minute')
        or exists (select from headrace.scheduled_tasks s
                   where greatest(s.planned_at, s.updated_at) > t + interval '1 minute')
        or exists (select from headrace.nodes n where n.last_heartbeat > t + interval '1 minute')
        or exists (select from headrace.upkeep u where u.task in ('hourly', 'unhandled')
                       and u.next_at > t + interval '61 minutes')
$$;
