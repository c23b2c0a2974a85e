-- The time since when rows are retained by `retention` or `idempotency_retention`. configure
-- accepts at most a hundred years; a longer or invalid value was written without configure: it
-- retains a hundred years, or everything, and does not stop the upkeep.
create or replace function headrace._retained_since(name text, t timestamptz) returns timestamptz
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select case when s.value ~ E'^[1-9]\\d{0,4} (days?|weeks?|months?|years?)$'
                then t - least(s.value::interval, interval '100 years')
                else '-infinity' end
    from (select headrace._setting(_retained_since.name) as value) s
$$;
