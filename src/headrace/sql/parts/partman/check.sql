do $$
declare
    home text;
    version text;
begin
    select n.nspname, e.extversion into home, version
    from pg_extension e join pg_namespace n on n.oid = e.extnamespace where e.extname = 'pg_partman';
    if not found then
        raise exception using errcode = 'QU041', message =
            'This database is without pg_partman: as a superuser, run "create schema partman; create extension '
            'pg_partman schema partman", then migrate again.';
    elsif not exists (select from pg_proc p where p.pronamespace = home::regnamespace
                          and p.proname = 'drop_partition_time'
                      and 'p_reference_timestamp' = any (p.proargnames)) then
        raise exception using errcode = 'QU041',
            message = format('pg_partman %s is too old: Headrace works with 4.7 and later.', version);
    elsif exists (select from pg_proc p join pg_roles r on r.oid = p.proowner
                  where p.pronamespace = home::regnamespace and r.rolname <> current_user and not r.rolsuper) then
        -- The owner of a function may replace it, and upkeep would run it with the rights of this
        -- user.
        raise exception using errcode = 'QU041', message = format(
            'Functions in the schema %I of pg_partman belong to another role, which is not a superuser: have a '
            'superuser create the extension, then migrate again.', home);
    elsif not has_schema_privilege(home, 'usage') or not has_schema_privilege(home, 'create')
          or not has_table_privilege(format('%I.part_config', home), 'select, insert, update, delete') then
        raise exception using errcode = 'QU041', message = format(
            'This user may not use pg_partman: as a superuser, run "grant all on schema %I to %I; grant all on all '
            'tables in schema %I to %I", then migrate again.',
            home, current_user, home, current_user);
    end if;
end $$;
