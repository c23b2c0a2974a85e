-- The lifetime metrics of a queue, as the state document has them: the number of events that ended,
-- completed or not, the number of attempts that failed or were abandoned, and the run time of the
-- attempts that reported it.
create or replace function headrace._state_metrics(queue int) returns json
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select json_build_object(
        'totalProcessed', coalesce(sum(n.completed + n.dead), 0), 'totalErrors',
        coalesce(sum(n.failed + n.abandoned), 0),
        'avgProcessingTimeMs', coalesce(trim_scale(round(sum(n.ms) / nullif(sum(n.timed), 0), 1)), 0))
    from (
        select f.completed, f.dead, f.failed, f.abandoned, f.ms, f.timed from headrace.totals f
        where f.queue = _state_metrics.queue
        union all
        select c.completed, c.dead, c.failed, c.abandoned, c.ms, c.timed from headrace.counts c
        where c.queue = _state_metrics.queue
    ) n
$$;
