-- The beginning of the oldest month whose events or log are retained; no row that is stored by
-- month is older.
create or replace function headrace._oldest_partition() returns timestamptz
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select least(
        date_trunc('month', headrace._now(), 'UTC'),
        (select min((regexp_match(pg_get_expr(c.relpartbound, c.oid), E'FROM \\(''([^'']+)''\\)'))[1]::timestamptz)
         from pg_inherits i join pg_class c on c.oid = i.inhrelid
         where i.inhparent in ('headrace.events'::regclass, 'headrace.outcomes'::regclass,
                               'headrace.errors'::regclass)),
        (select min(e.created_at) from headrace.events_default e),
        (select min(o.at) from headrace.outcomes_default o),
        (select min(x.at) from headrace.errors_default x))
$$;
