-- The trigger that refuses every write to core.event_log.
create or replace function core._refuse_log() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    raise exception using errcode = 'QU001', message = case tg_op
        when 'INSERT'
            then 'an event is recorded in core.event_log by core.append_event_log, and published by pgmq.send or '
                 'headrace.publish'
        else 'core.event_log is append-only: what it has is not changed, and goes with its month' end;
end $$;
