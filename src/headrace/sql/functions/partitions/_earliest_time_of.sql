-- A time before which none of these events was published, so that nothing happened to them earlier
-- either: for look-ups by id, so that PostgreSQL need not open earlier months. Ids grow with time,
-- and upkeep stores one pair of both a day (marks). The bound leaves a margin of a day: a publisher
-- may have read the clock long before it drew the id. Where the clock was set back, later marks
-- show it. With few months there is no bound. Callers write (since = '-infinity' or at >= since):
-- in a generic plan that is a mere filter, and does not tempt the planner to walk an index by time.
create or replace function headrace._earliest_time_of(ids bigint[]) returns timestamptz
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
    select case when f.id is null or not headrace._plans_by_month() then '-infinity'
                else least((select min(m.at) from headrace.marks m where m.id >= f.id),
                           headrace._now()) - interval '1 day' end
    from (select (select m.id from headrace.marks m where m.id < (select min(i) from unnest(ids) i) order by m.id desc
                  limit 1) as id) f
$$;
