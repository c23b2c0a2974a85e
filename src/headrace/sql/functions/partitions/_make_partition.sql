-- Makes the partition of a month if it is missing, under this name, or else under ours; returns
-- whether it was missing. The function makes it beside its table and attaches it, so that
-- publishers and readers go on. Rows of that month in the DEFAULT partition move into it; writers
-- wait for that moment, unless the lock takes longer than the caller's lock_timeout.
create or replace function headrace._make_partition(
    parent text, key text, starts timestamptz, name text default null
) returns boolean
language plpgsql
as $$
declare
    ends timestamptz := starts + interval '1 month';
    caught boolean;
begin
    name := coalesce(name, parent || to_char(starts, '_YYYY_MM'));
    if to_regclass('headrace.' || name) is not null then
        return false;
    end if;
    -- A session that writes to the DEFAULT partition now would wait for it below, and find that it
    -- no longer takes the row. If the session waits at the parent, it chooses a partition only
    -- afterwards. No session writes to a future month.
    execute format('select exists (select from headrace.%I where %I >= %L and %I < %L)', parent || '_default', key,
                   starts, key, ends)
    into caught;
    if caught or starts <= headrace._now() + interval '1 hour' then
        execute format('lock table only headrace.%I in share row exclusive mode', parent);
    end if;
    execute format(
        'create table headrace.%I (like headrace.%I including defaults including constraints including storage)',
        name, parent);
    if parent = 'events' then
        execute format('alter table headrace.%I add primary key (id)', name);
    end if;
    execute format('lock table headrace.%I in access exclusive mode', parent || '_default');
    execute format('with gone as (delete from headrace.%I where %I >= %L and %I < %L returning *)
                    insert into headrace.%I select * from gone', parent || '_default', key, starts, key, ends, name);
    -- The check spares the attachment a scan.
    execute format('alter table headrace.%I add constraint month check (%I >= %L and %I < %L)', name, key,
                   starts, key, ends);
    execute format('alter table headrace.%I attach partition headrace.%I for values from (%L) to (%L)', parent, name,
                   starts, ends);
    execute format('alter table headrace.%I drop constraint month', name);
    return true;
end $$;
