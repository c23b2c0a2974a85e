-- Folds the rows that calls have appended to counts into stats, a row per queue and minute, into
-- moments, a row per queue and five seconds, and into totals, a row per queue. One call at a time;
-- a second call leaves the work to the first. since: as in _tick_due. At most `most` rows, the
-- oldest first; returns whether there may be more.
create or replace function headrace._fold_counts(since timestamptz, most int default 100000) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
declare
    folded int;
    t constant timestamptz := headrace._now();
begin
    if not headrace._try_lock('counts') then
        return false;
    end if;
    with gone as (
        delete from headrace.counts c
        where c.ctid = any (array(select o.ctid from headrace.counts o where o.at >= since order by o.at limit most))
        returning *
    ),
    of_minutes as materialized (
        select date_trunc('minute', least(at, t)) as minute, namespace, queue, sum(published) as published,
               sum(completed) as completed,
               sum(failed) as failed, sum(retried) as retried, sum(abandoned) as abandoned, sum(dead) as dead,
               sum(attempts) as attempts, sum(timed) as timed, sum(ms) as ms
        from gone group by 1, 2, 3
    ),
    in_all as (
        insert into headrace.totals as s (queue, published, completed, failed, retried, abandoned, dead,
                                          attempts, timed, ms)
        select queue, sum(published), sum(completed), sum(failed), sum(retried), sum(abandoned), sum(dead),
               sum(attempts), sum(timed), sum(ms)
        from of_minutes group by queue
        on conflict (queue) do update set
            published = s.published + excluded.published,
            completed = s.completed + excluded.completed,
            failed = s.failed + excluded.failed,
            retried = s.retried + excluded.retried,
            abandoned = s.abandoned + excluded.abandoned,
            dead = s.dead + excluded.dead,
            attempts = s.attempts + excluded.attempts,
            timed = s.timed + excluded.timed,
            ms = s.ms + excluded.ms
    ),
    of_moments as (
        insert into headrace.moments as s (queue, at, published, completed, failed, retried, dead)
        select queue, date_bin(interval '5 seconds', least(at, t), timestamptz 'epoch'), sum(published), sum(completed),
               sum(failed + abandoned), sum(retried), sum(dead)
        from gone where at > t - interval '1 hour' group by 1, 2
        on conflict (queue, at) do update set
            published = s.published + excluded.published,
            completed = s.completed + excluded.completed,
            failed = s.failed + excluded.failed,
            retried = s.retried + excluded.retried,
            dead = s.dead + excluded.dead
    ),
    in_minutes as (
        insert into headrace.stats as s (minute, namespace, queue, published, completed, failed, retried, abandoned,
                                         dead, attempts, timed, ms)
        select minute, namespace, queue, published, completed, failed, retried, abandoned, dead, attempts, timed, ms
        from of_minutes
        on conflict (queue, minute) do update set
            published = s.published + excluded.published,
            completed = s.completed + excluded.completed,
            failed = s.failed + excluded.failed,
            retried = s.retried + excluded.retried,
            abandoned = s.abandoned + excluded.abandoned,
            dead = s.dead + excluded.dead,
            attempts = s.attempts + excluded.attempts,
            timed = s.timed + excluded.timed,
            ms = s.ms + excluded.ms
    )
    select count(*) into folded from gone;
    return folded = most;
end $$;
