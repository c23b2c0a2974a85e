-- What is wrong with a task; null: nothing. That the expression means something is for those to say who work out its instants.
create or replace function headrace.task_problem(
    name text, cron_expression text, timezone text, missed text, header jsonb, payload jsonb
) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    perform now() at time zone timezone;
    return case
        when headrace.name_problem('schedule', name) is not null
            then headrace.name_problem('schedule', name)
        when cron_expression is null or length(cron_expression) > 200
             or cron_expression !~ '^(@[a-z]+|[-0-9A-Za-z*/,#]+( [-0-9A-Za-z*/,#]+){4,5})$'
            then 'QU001 a cron expression has five fields, or six with seconds first, as in "0 2 * * *"'
        when timezone is null or length(timezone) > 100
            then 'QU001 a time zone has a name, as in Europe/Berlin'
        when missed is null or missed not in ('coalesce', 'catch_up', 'skip')
            then 'QU001 missed is coalesce, catch_up or skip'
        when jsonb_typeof(header) is distinct from 'object'
            then 'QU001 what describes an event is a JSON object'
        when header ?| '{payload,payloads,delay,at,idempotency_key,producer,scheduled_task_id,scheduled_for,emitted_at}'
            then 'QU001 the event of a schedule has no delay, time, idempotency key or producer of its own'
        else coalesce(headrace.problem(header), headrace.payload_problem(payload))
    end;
exception when invalid_parameter_value then
    return format('QU001 there is no time zone %L', timezone);
end $$;
