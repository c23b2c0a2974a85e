-- pg_cron must run; it need not be installed in this database, see schedules.sql.
do $$
declare
    home text;
begin
    if exists (select from pg_extension where extname = 'pg_cron') then
        if not has_schema_privilege('cron', 'usage') then
            raise exception using errcode = 'QU041', message = format(
                'This user may not use pg_cron: as a superuser, run "grant usage on schema cron to %I", then '
                'migrate again.', current_user);
        end if;
        return;
    end if;
    begin
        home := current_setting('cron.database_name', true);
    exception when insufficient_privilege then
        return;     -- it runs, and this user may not see in which database
    end;
    if home is null then
        raise exception using errcode = 'QU041', message =
            'PostgreSQL runs without pg_cron: add it to shared_preload_libraries, restart, and migrate again.';
    elsif home = current_database() then
        raise exception using errcode = 'QU041', message =
            'pg_cron is to live in this database and does not yet: as a superuser, run "create extension pg_cron", '
            'then migrate again.';
    end if;
end $$;
