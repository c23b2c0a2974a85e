-- Makes the monthly partitions of this month and the next three, where they are missing.
-- A partition is made beside its table and attached, so publishers and readers go on. What the DEFAULT
-- partition caught meanwhile moves into it: for that moment writers of that table wait, at most as long as
-- the caller's lock_timeout lets anybody queue.
create function headrace.make_partitions() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'            -- a month is a month of UTC
as $$
declare
    parent text;
    key text;
    starts timestamptz;
    name text;
begin
    for parent, key, starts in
        select p.parent, p.key, date_trunc('month', headrace.now(), 'UTC') + make_interval(months => m)
        from (values ('events', 'created_at'), ('outcomes', 'at'), ('errors', 'at')) as p(parent, key), generate_series(0, 3) m
    loop
        name := parent || to_char(starts at time zone 'UTC', '_YYYY_MM');
        continue when to_regclass('headrace.' || name) is not null;
        execute format('create table headrace.%I (like headrace.%I including defaults including constraints)', name, parent);
        execute format('lock table headrace.%I in access exclusive mode', parent || '_default');
        execute format(
            'with gone as (delete from headrace.%I where %I >= %L and %I < %L returning *) insert into headrace.%I select * from gone',
            parent || '_default', key, starts, key, starts + interval '1 month', name);
        execute format('alter table headrace.%I add constraint %I check (%I >= %L and %I < %L)',
                       name, name || '_month', key, starts, key, starts + interval '1 month');
        execute format('alter table headrace.%I attach partition headrace.%I for values from (%L) to (%L)',
                       parent, name, starts, starts + interval '1 month');
        execute format('alter table headrace.%I drop constraint %I', name, name || '_month');
    end loop;
end $$;
