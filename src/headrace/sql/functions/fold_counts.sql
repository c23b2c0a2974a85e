-- Folds what the calls have appended to counts into stats, a row per queue and minute. One folder at a time;
-- whoever comes second leaves it to the first. since: as in tick_due.
create or replace function headrace.fold_counts(since timestamptz) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
begin
    if not pg_try_advisory_xact_lock(1212433733, 0) then
        return;
    end if;
    with gone as (
        delete from headrace.counts where at >= since returning *
    )
    insert into headrace.stats as s (minute, namespace, queue, published, completed, failed, abandoned, dead, attempts, timed, ms)
    select date_trunc('minute', at), namespace, queue, sum(published), sum(completed), sum(failed), sum(abandoned), sum(dead),
           sum(attempts), sum(timed), sum(ms)
    from gone group by 1, 2, 3
    on conflict (queue, minute) do update set
        published = s.published + excluded.published,
        completed = s.completed + excluded.completed,
        failed = s.failed + excluded.failed,
        abandoned = s.abandoned + excluded.abandoned,
        dead = s.dead + excluded.dead,
        attempts = s.attempts + excluded.attempts,
        timed = s.timed + excluded.timed,
        ms = s.ms + excluded.ms;
end $$;
