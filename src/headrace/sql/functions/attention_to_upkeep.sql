-- What is wrong with the installation: see attention. Ten leases or delays that are late are as many as are counted.
create or replace function headrace.attention_to_upkeep(t timestamptz) returns setof headrace.finding
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
    with upkeep as (
        select (select s.at from headrace.samplings s where s.step = 5 order by s.at desc limit 1) as last_at,
               (select count(*) from (select from headrace.leases l where l.until < t - interval '1 minute' and not l.reaped
                                      order by l.until limit 10) l) as expired,
               (select count(*) from (select from headrace.delayed d where d.due_at < t - interval '1 minute' order by d.due_at limit 10) d) as due
    )
    select 'upkeep_stopped', 'critical', null::text, null::text, jsonb_build_object('expired', u.expired, 'due', u.due), u.last_at
    from upkeep u where coalesce(u.last_at, '-infinity') < t - interval '1 minute'
    union all
    select 'upkeep_behind', 'warning', null, null, jsonb_build_object('expired', u.expired, 'due', u.due), null
    from upkeep u where u.last_at >= t - interval '1 minute' and u.expired + u.due > 0
    union all
    select 'default_partition', 'warning', null, null, jsonb_build_object('tables', array_agg(o.name order by o.name)), null
    from (
        select 'events' as name where exists (select from headrace.events_default)
        union all
        select 'outcomes' where exists (select from headrace.outcomes_default)
        union all
        select 'errors' where exists (select from headrace.errors_default)
    ) o
    having count(*) > 0
$$;
