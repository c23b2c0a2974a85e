-- Whether pg_cron reads this expression as we do: five fields without seconds, in UTC, and
-- pg_cron's own time zone is UTC, too.
create or replace function headrace_cron.can_run(cron_expression text, timezone text) returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    utc constant text := '^(Etc/)?(UTC|GMT|UCT|Zulu|Universal|Greenwich)$';
    field constant text := '[-0-9*/,]+|[A-Za-z]{3}([-,][A-Za-z]{3})*';
begin
    return timezone ~ utc
        and coalesce(current_setting('cron.timezone', true), 'GMT') ~ utc
        and cron_expression ~ format('^(@(hourly|daily|midnight|weekly|monthly|yearly|annually)|(%s)( (%s)){4})$',
                                     field, field);
exception when insufficient_privilege then
    return false;   -- a user that may not see pg_cron's time zone cannot rely on it
end $$;
