-- The state of a queue now: the document that save_state keeps, with payloads. It lists unfinished
-- events in the order of ids, at most `limit` of them; after: continue after this id. total: the
-- number of unfinished events, counted to 10,000 (is_exact: there are no more).
-- Concurrency: never waits. Raises QU001, QU010, QU011.
create or replace function headrace.state(
    namespace text, queue text default 'main', "limit" int default 100, after bigint default 0,
    out document json, out total bigint, out is_exact boolean
)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    t constant timestamptz := headrace._now();
    q constant headrace.queues := headrace._queue_named(state.namespace, state.queue);
    h constant headrace.horizon := headrace._horizon(false, false);
begin
    if "limit" is null or "limit" not between 0 and 1000 or after is null or after < 0 then
        raise exception using errcode = 'QU001',
            message = 'state tells of up to 1000 events after an id, or after 0: from the first on';
    end if;
    select json_build_object(
               'id', q.space || '/' || q.name,
               'events', (
                   select coalesce(json_agg(json_build_object(
                       'eventId', e.id::text, 'pattern', e.pattern, 'version', e.version, 'source', e.source,
                       'timestamp', e.timestamp,
                       'payload', e.payload, 'metadata', e.metadata) order by e.id), '[]')
                   from headrace._state_events(q, after, "limit") e),
               'checkpointId', l.checkpoint::text,
               'queueMetrics', headrace._state_metrics(q.id), 'config', headrace._state_config(q), 'status', q.state,
               'created_at', headrace._iso(q.created_at), 'updated_at', headrace._iso(t)),
           l.lag, l.lag_is_exact
    into document, total, is_exact
    from headrace._measure_low_water(q, h, 10000) l;
end $$;
