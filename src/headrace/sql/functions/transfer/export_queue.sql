-- The header of a queue's file: the database it is from, the queue's settings, and its state
-- without the events. export_events returns the events; in one transaction at REPEATABLE READ, all
-- of it is from one moment.
-- move: the queue will be removed here. It must be paused, and nothing in it may be claimed: see
-- fence.
-- Raises QU010, QU011, and QU055 for a move of a queue that is not paused or has claims.
create or replace function headrace.export_queue(
    namespace text, queue text default 'main', move boolean default false
) returns json
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
as $$
#variable_conflict use_column
declare
    q constant headrace.queues := headrace._queue_named(export_queue.namespace, export_queue.queue);
    its_id constant text := q.space || '/' || q.name;
begin
    if export_queue.move and q.state <> 'paused' then
        perform headrace._raise_problem(headrace._move_problem(q), 0);
    elsif export_queue.move and exists (select from headrace.deliveries d where d.queue = q.id and d.lease is not null)
        then
        perform headrace._raise_problem(format('QU055 the queue %L has claims: headrace.fence takes them back', its_id),
                                        0);
    end if;
    return json_build_object(
        'format', 'headrace state', 'version', 1,
        'origin', (select i.id from headrace.identity i), 'exported_at', headrace._now(), 'move', export_queue.move,
        'last_id', headrace._last_drawn_id(),
        'shard', (select json_build_object('stride', s.stride, 'number', s.number, 'mark', s.mark)
                  from headrace.shard s),
        'settings', (
            select json_object_agg(s.key, s.value)
            from jsonb_each(to_jsonb(q) || jsonb_build_object(
                'lease', extract(epoch from q.lease), 'aging', extract(epoch from q.aging))) s
            where s.value <> 'null'
              and s.key <> all ('{id,namespace,name,space,version,state,created_at,deleted_at,bound}')),
        'state', json_build_object(
            'id', its_id, 'checkpointId', (select s.checkpoint_id from headrace.event_queue_state s
                                           where s.id = its_id),
            'queueMetrics', headrace._state_metrics(q.id), 'config', headrace._state_config(q), 'status', q.state,
            'created_at', headrace._iso(q.created_at), 'updated_at', headrace._iso(headrace._now())));
end $$;
