-- The state of a queue now: the document that save_state keeps, with payloads. What is unfinished comes in the order of ids, at most
-- `limit` of it; after: go on after this id. total: how many are unfinished in all, counted to 10,000 (is_exact: not more).
-- Concurrency: waits for nobody. Raises QU001, QU010, QU011.
create or replace function headrace.state(
    namespace text, queue text default 'main', "limit" int default 100, after bigint default 0,
    out document json, out total bigint, out is_exact boolean
)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    t constant timestamptz := headrace.now();
    q constant headrace.queues := headrace.its_queue(state.namespace, state.queue);
    h constant headrace.horizon := headrace.look_ahead(false, false);
begin
    if "limit" is null or "limit" not between 0 and 1000 or after is null or after < 0 then
        raise exception using errcode = 'QU001', message = 'state tells of up to 1000 events after an id, or after 0: from the first on';
    end if;
    select json_build_object(
               'id', q.space || '/' || q.name,
               'events', (
                   select coalesce(json_agg(json_build_object(
                       'eventId', e.id::text, 'pattern', e.pattern, 'version', e.version, 'source', e.source, 'timestamp', e.timestamp,
                       'payload', e.payload, 'metadata', e.metadata) order by e.id), '[]')
                   from headrace.state_events(q, after, "limit") e),
               'checkpointId', l.checkpoint::text,
               'queueMetrics', headrace.state_metrics(q.id), 'config', headrace.state_config(q), 'status', q.state,
               'created_at', headrace.iso(q.created_at), 'updated_at', headrace.iso(t)),
           l.lag, l.lag_is_exact
    into document, total, is_exact
    from headrace.measure_low_water(q, h, 10000) l;
end $$;
