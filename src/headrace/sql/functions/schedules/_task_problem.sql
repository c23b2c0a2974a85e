-- The problem with a task; null: none.
create or replace function headrace._task_problem(
    name text, cron_expression text, timezone text, missed text, header jsonb, payload jsonb
) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    perform now() at time zone timezone;
    return case
        when headrace._name_problem('schedule', name) is not null
            then headrace._name_problem('schedule', name)
        when headrace._cron_problem(cron_expression) is not null
            then headrace._cron_problem(cron_expression)
        when timezone is null or length(timezone) > 100
            then 'QU001 a time zone has a name, as in Europe/Berlin'
        when missed is null or missed not in ('coalesce', 'catch_up', 'skip')
            then 'QU001 missed is coalesce, catch_up or skip'
        when jsonb_typeof(header) is distinct from 'object'
            then 'QU001 what describes an event is a JSON object'
        when header ?| '{payload,payloads,delay,at,idempotency_key,producer,scheduled_task_id,scheduled_for,emitted_at}'
            or header ? 'debounce'
            then 'QU001 the event of a schedule has no delay, time, idempotency key, debounce key or producer of its '
                 'own'
        else coalesce(headrace._header_problem(header), headrace._payload_problem(payload))
    end;
exception when invalid_parameter_value then
    return format('QU001 unknown time zone %L', timezone);
end $$;
