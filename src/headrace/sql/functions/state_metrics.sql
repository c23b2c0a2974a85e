-- What has happened in a queue in all, as the state document tells it: how many events have come to an end, well or not, how many
-- attempts have failed or were abandoned, and how long those took that said so.
create or replace function headrace.state_metrics(queue int) returns json
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select json_build_object(
        'totalProcessed', coalesce(sum(n.completed + n.dead), 0), 'totalErrors', coalesce(sum(n.failed + n.abandoned), 0),
        'avgProcessingTimeMs', coalesce(trim_scale(round(sum(n.ms) / nullif(sum(n.timed), 0), 1)), 0))
    from (
        select f.completed, f.dead, f.failed, f.abandoned, f.ms, f.timed from headrace.totals f where f.queue = state_metrics.queue
        union all
        select c.completed, c.dead, c.failed, c.abandoned, c.ms, c.timed from headrace.counts c where c.queue = state_metrics.queue
    ) n
$$;
