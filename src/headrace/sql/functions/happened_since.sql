-- A time before which none of these events was published, and so nothing happened to them: for look-ups by id, so that PostgreSQL need not
-- open the months before it. Ids grow with time, and upkeep notes a pair of both a day (marks). A day is allowed for: a publisher may have
-- read the clock long before it drew the id. Where the clock was set back, later marks say so. Where there are few months, there is no bound.
-- Callers write (since = '-infinity' or at >= since): in a plan for all calls that is a mere filter, and tempts nobody to walk an index by time.
create or replace function headrace.happened_since(ids bigint[]) returns timestamptz
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
    select case when f.id is null or not headrace.by_month() then '-infinity'
                else least((select min(m.at) from headrace.marks m where m.id >= f.id), headrace.now()) - interval '1 day' end
    from (select (select m.id from headrace.marks m where m.id < (select min(i) from unnest(ids) i) order by m.id desc limit 1) as id) f
$$;
