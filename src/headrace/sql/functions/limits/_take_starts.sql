-- Takes starts from the rates of groups that the caller has locked, `n` of each. They are never
-- given back.
create or replace function headrace._take_starts(
    queue int, starts headrace.membership[], t timestamptz
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_nestloop = on
set plan_cache_mode = force_generic_plan
as $$
begin
    update headrace.limit_groups f
    set level = headrace._refilled(f.level, f.unit, f.at, s.rate, s.per, s.burst, t) - s.n * s.per, unit = s.per,
        at = headrace._log_time(t, f.at)
    from unnest(starts) s
    where f.queue = _take_starts.queue and f.scope = s.scope and f.name = s.name;
end $$;
