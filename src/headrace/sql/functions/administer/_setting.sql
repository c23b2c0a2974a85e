-- A setting of this installation: its configured value, or its default.
create or replace function headrace._setting(name text) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(
        (select s.value from headrace.settings s where s.name = _setting.name),
        case _setting.name
            when 'retention' then '6 months'
            when 'retention_action' then 'drop'
            when 'idempotency_retention' then '7 days'
            when 'max_payload' then '1048576'
            when 'state_interval' then '10 seconds'
        end)
$$;
