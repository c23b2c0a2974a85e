-- Stores the progress that results carry, for the next attempts: see save_progress. The arguments
-- are those of _settle, and so are the settings.
create or replace function headrace._store_results_progress(
    q headrace.queues, t timestamptz, usual text, taken headrace.taken[], others jsonb
) returns void
language plpgsql
as $$
#variable_conflict use_column
begin
    insert into headrace.progress as p (queue, event, attempt, value, saved_at, look_at)
    select q.id, k.event, k.attempt, o.other -> 'progress', t, t + interval '1 hour'
    from unnest(taken) k cross join lateral (select others -> k.item::text as other) o
    where o.other ? 'progress' and coalesce(o.other ->> 'action', usual) <> 'complete'
    order by k.event
    on conflict on constraint progress_pkey do update
    set attempt = case when p.value = excluded.value then p.attempt else excluded.attempt end,
        value = excluded.value, saved_at = excluded.saved_at, look_at = excluded.look_at;
end $$;
