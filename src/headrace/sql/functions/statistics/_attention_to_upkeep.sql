-- The problems of the installation: see attention. Reports at most ten late leases or delays.
create or replace function headrace._attention_to_upkeep(t timestamptz) returns setof headrace.finding
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
    with upkeep as materialized (
        select u.*, jsonb_build_object('expired', least(u.expired, 10), 'due', least(u.due, 10)) as about
        from headrace.ticking() u
    )
    select 'upkeep_stopped', 'critical', null::text, null::text, u.about, u.last_at
    from upkeep u where u.stopped
    union all
    select 'upkeep_behind', 'warning', null, null,
           u.about || case when u.overdue > interval '1 hour'
                           then jsonb_build_object('overdue_seconds', floor(extract(epoch from u.overdue)))
                               else '{}' end, null
    from upkeep u where not u.stopped and (u.expired + u.due > 0 or u.overdue > interval '1 hour')
    union all
    select 'upkeep_failing', 'warning', null, null, jsonb_build_object('problem', u.problem), null
    from upkeep u where u.problem is not null
    union all
    select 'default_partition', 'warning', null, null, jsonb_build_object('tables', array_agg(o.name order by o.name)),
           null
    from (
        select 'events' as name where exists (select from headrace.events_default)
        union all
        select 'outcomes' where exists (select from headrace.outcomes_default)
        union all
        select 'errors' where exists (select from headrace.errors_default)
    ) o
    having count(*) > 0
    union all
    select 'lock_in_the_way', 'warning', null, null,
           jsonb_build_object('purpose', l.purpose, 'pid', l.pid, 'role', l.role, 'application', l.application), null
    from headrace.locks_in_the_way() l
$$;
