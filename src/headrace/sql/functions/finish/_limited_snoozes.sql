-- The `others` of a finish, in which each snooze is a failure whose delivery was snoozed max_snoozes
-- times before, since it was published, redriven or run again. Counted in the log: a count beside
-- every delivery would burden all those that are never snoozed. Each snooze was an attempt, so an
-- early attempt cannot be one too many, and the log is read for late ones only.
create or replace function headrace._limited_snoozes(
    q headrace.queues, taken headrace.taken[], others jsonb
) returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    late record;
begin
    for late in
        select k.item::text as item
        from unnest(taken) k
        cross join lateral (
            select count(*) filter (where o.action = 'SNOOZED') as times
            from headrace.outcomes o
            where o.bucket = k.event >> 10 and o.queue = q.id and o.at >= k.created_at - interval '1 day'
              and k.event = any (o.events)
              and o.id > coalesce((
                  select max(d.id) from headrace.outcomes d
                  where d.bucket = k.event >> 10 and d.queue = q.id and d.at >= k.created_at - interval '1 day'
                    and k.event = any (d.events) and d.action in ('REDRIVEN', 'RERUN')), 0)
        ) s
        where others -> k.item::text ? 'delay' and k.attempt > q.max_snoozes and s.times >= q.max_snoozes
    loop
        others := jsonb_set(others, array[late.item], (others -> late.item) - 'delay' || jsonb_build_object(
            'action', 'fail', 'error', headrace._too_many_snoozes(), 'last_reason', headrace._too_many_snoozes()));
    end loop;
    return others;
end $$;
