-- Saves the state of a queue, and its checkpoint: always when it is `asked` for, else when the
-- checkpoint has moved and the last one is a minute old. Only the changed values of the row are
-- written again. `h`: see _measure_low_water. The caller keeps other sessions from saving the same
-- queue.
create or replace function headrace._store_state(q headrace.queues, t timestamptz, h headrace.horizon, asked boolean)
returns headrace.low_water
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    its_id constant text := q.space || '/' || q.name;
    low constant headrace.low_water := headrace._measure_low_water(q, h, case when not asked then 10000 end);
    last headrace.queue_checkpoints;
begin
    -- A queue that is being deleted keeps no state.
    perform from headrace.queues o where o.id = q.id and o.space is not null for share skip locked;
    if not found then
        return low;
    end if;
    insert into headrace.event_queue_state as s (id, events, checkpoint_id, queue_metrics, config, status,
                                                 created_at, updated_at)
    select its_id, coalesce(jsonb_agg(jsonb_build_object(
               'eventId', e.id::text, 'pattern', e.pattern, 'version', e.version, 'source', e.source, 'timestamp',
               e.timestamp,
               'metadata', case when e.metadata ? 'lastError'
                                then e.metadata || jsonb_build_object('lastError',
                                                                      left(e.metadata ->> 'lastError', 500))
                                else e.metadata end) order by e.id), '[]'),
           low.checkpoint, headrace._state_metrics(q.id), headrace._state_config(q), q.state, q.created_at, t
    from headrace._state_events(q, 0, 1000) e
    on conflict (id) do update set
        -- an unchanged long value stays where it is
        events = case when s.events = excluded.events then s.events else excluded.events end,
        checkpoint_id = excluded.checkpoint_id, queue_metrics = excluded.queue_metrics, config = excluded.config,
        status = excluded.status, created_at = excluded.created_at, updated_at = excluded.updated_at;
    select * into last from headrace.queue_checkpoints c where c.queue_id = its_id order by c.created_at desc limit 1;
    if asked or last.checkpoint_id is distinct from low.checkpoint::text
       and (last.id is null or last.created_at < t - interval '1 minute') then
        insert into headrace.queue_checkpoints (id, queue_id, checkpoint_id, event_count, created_at)
        values (gen_random_uuid(), its_id, low.checkpoint, low.processed, t);
    end if;
    return low;
end $$;
