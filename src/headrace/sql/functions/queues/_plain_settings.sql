-- The settings of a queue by their own names: the caller may also use the names of the state
-- document, as in state(…) -> 'config'. Raises QU001 for a setting that is given by both names.
create or replace function headrace._plain_settings(settings jsonb) returns jsonb
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
    names constant jsonb := '{
        "maxQueueDepth": "max_queue_depth", "batchSize": "batch_size",
        "processingInterval": "processing_interval", "persistenceThreshold": "persistence_threshold",
        "highWatermark": "high_watermark"}';
    name text;
begin
    if jsonb_typeof(settings) is distinct from 'object' then
        return settings;    -- _queue_problem names the problem
    end if;
    for name in select n from jsonb_object_keys(names) n where settings ? n loop
        if settings ? (names ->> name) then
            raise exception using errcode = 'QU001',
                message = format('%s and %s are the same setting: give one of them', name, names ->> name);
        end if;
        settings := settings - name || jsonb_build_object(names ->> name, settings -> name);
    end loop;
    return settings;
end $$;
