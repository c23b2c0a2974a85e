-- Since when something is kept that `retention` or `idempotency_retention` is about. A hundred years is the most that configure takes, and
-- what is beyond it, or is no length of time, was written past it: that keeps a hundred years, or everything, and stops no upkeep.
create or replace function headrace.kept_since(name text, t timestamptz) returns timestamptz
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select case when s.value ~ E'^[1-9]\\d{0,4} (days?|weeks?|months?|years?)$' then t - least(s.value::interval, interval '100 years')
                else '-infinity' end
    from (select headrace.setting(kept_since.name) as value) s
$$;
