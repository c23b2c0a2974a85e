-- Whether ticks run, and the work that waits for them: the source of attention and the doctor on
-- the upkeep.
--     last_at   when tick was last seen; null: never
--     stopped   no tick has run for a minute. A new installation has an hour for its first tick
--     overdue   how long the hourly upkeep has been due; null or negative: it is not. problem: its
--               last failure
--     expired   leases that hold deliveries and expired `late` ago, the first of them at
--               expired_since; due: delays that ended then. Both are counted to 1,000. at: the time
--               of the call
create or replace function headrace.ticking(
    late interval default '1 minute',
    out last_at timestamptz, out stopped boolean, out overdue interval, out problem text,
    out expired bigint, out expired_since timestamptz, out due bigint, out at timestamptz
)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
    select u.last_at,
           coalesce(u.last_at, case when not u.is_new then timestamptz '-infinity' end,
                    u.installed_at + interval '59 minutes') < u.t - interval '1 minute',
           u.t - coalesce(u.next_at, u.installed_at + interval '1 hour'), u.problem, l.expired, l.since, d.due, u.t
    from (
        select headrace._now() as t,
               (select coalesce(s.looked_at, s.at) from headrace.samplings s where s.step = 5
                order by s.at desc limit 1) as last_at,
               not exists (select from headrace.upkeep) as is_new,
               (select min(m.applied_at) from headrace.migrations m) as installed_at,
               (select h.next_at from headrace.upkeep h where h.task = 'hourly') as next_at,
               (select h.problem from headrace.upkeep h where h.task = 'hourly') as problem
    ) u
    cross join lateral (
        select count(*) as expired, min(o.until) as since
        from (select l.* from headrace.leases l where l.until < u.t - ticking.late and not l.reaped order by l.until
              limit 1000) o
        -- A lease whose deliveries were all finished one by one holds nothing.
        where o.events is not null or exists (select from headrace.held h where h.lease = o.id)
    ) l
    cross join lateral (
        select count(*) as due
        from (select from headrace.delayed d where d.due_at < u.t - ticking.late order by d.due_at limit 1000) d
    ) d
$$;
