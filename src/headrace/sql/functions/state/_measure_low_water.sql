-- The low-water mark of a queue: see low_water. `h` is a horizon from before this look. `most`: see
-- _last_finished.
create or replace function headrace._measure_low_water(
    q headrace.queues, h headrace.horizon, most int
) returns headrace.low_water
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    low headrace.low_water;
    oldest record;
    filled constant bigint := (select c.done from headrace.chores c where c.queue = q.id and c.task = 'fill');
    saved constant bigint := (select s.checkpoint_id from headrace.event_queue_state s
                              where s.id = q.space || '/' || q.name);
begin
    select * into oldest from headrace._oldest_unfinished(q.id);
    low.bound := least(oldest.event - 1, filled, h.final);
    low.oldest_at := oldest.created_at;
    low.reason := case
        when filled <= low.bound then 'the queue is being filled with what was published before it'
        when oldest.event - 1 <= low.bound then case oldest.place
            when 'held' then format('event %s is in progress at %s since %s', oldest.event,
                                    coalesce(nullif(oldest.worker, ''), 'a worker without a name'),
                                    headrace._iso(oldest.picked_at))
            when 'delayed' then format('event %s waits for %s', oldest.event, headrace._iso(oldest.due_at))
            when 'keyed' then format('event %s waits for its turn in the order of its key', oldest.event)
            else format('event %s waits to be claimed', oldest.event)
        end || case when q.state = 'paused' then ', and the queue is paused' else '' end
        when h.awaited <> '{}' then headrace._oldest_writer(h.awaited)
    end;
    select coalesce(sum(n.completed + n.dead), 0) into low.processed
    from (
        select f.completed, f.dead from headrace.totals f where f.queue = q.id
        union all
        select c.completed, c.dead from headrace.counts c where c.queue = q.id
    ) n;
    -- The saved checkpoint is still right, unless an event from below it has been redriven since.
    -- Without a saved checkpoint there may be nothing to find, however far the scan goes: so the
    -- scan is unlimited only if events have been processed, and all of them lie below the bound.
    if saved <= low.bound then
        low.checkpoint := greatest(saved, headrace._last_finished(q.id, low.bound, headrace._bucket(saved), most));
    elsif saved is null and (low.processed = 0 or low.bound < h.final) then
        low.checkpoint := headrace._last_finished(q.id, low.bound, 0, most);
    else
        low.checkpoint := headrace._last_finished(q.id, low.bound, 0, null);
    end if;
    select c.total, c.is_exact into low.lag, low.lag_is_exact
    from headrace.count_events(q.space, q.name, '{PENDING,PROCESSING}') c;
    return low;
end $$;
