-- The `others` of a finish, in which each snooze is a failure whose delivery was snoozed max_snoozes
-- times before, since it was published, redriven or run again. Counted in the log: a count beside
-- every delivery would burden all those that are never snoozed. Each snooze was an attempt, so an
-- early attempt cannot be one too many, and the log is read for late ones only. Only what came before
-- the attempt counts, so that a repeated finish says the same.
create or replace function headrace._limited_snoozes(
    q headrace.queues, events bigint[], attempts int[], others jsonb
) returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    error constant text := 'It was snoozed more often than the max_snoozes of its queue allow';
    late record;
begin
    for late in
        select i.item::text as item
        from unnest(_limited_snoozes.events, _limited_snoozes.attempts) with ordinality as i(event, attempt, item)
        cross join lateral (
            select count(*) filter (where b.action = 'SNOOZED' and b.id > b.began) as times
            from (
                select o.id, o.action, max(case when o.action in ('REDRIVEN', 'RERUN') then o.id else 0 end) over ()
                           as began
                from headrace.outcomes o
                where o.bucket = headrace._bucket(i.event) and o.queue = q.id
                  and o.attempts[array_position(o.events, i.event)] < i.attempt
            ) b
        ) s
        where others -> i.item::text ? 'delay' and i.attempt > q.max_snoozes and s.times >= q.max_snoozes
    loop
        others := jsonb_set(others, array[late.item], (others -> late.item) - 'delay' || jsonb_build_object(
            'action', 'fail', 'error', error, 'last_reason', error));
    end loop;
    return others;
end $$;
