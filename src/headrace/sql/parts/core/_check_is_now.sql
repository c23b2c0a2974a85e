-- Raises QU001 where a statement sets a column that the database's clock sets to anything but the
-- present time.
create or replace function core._check_is_now(name text, said timestamptz, was timestamptz) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    if said is distinct from was
       and (said between now() - interval '1 minute' and clock_timestamp() + interval '1 minute') is not true then
        raise exception using errcode = 'QU001',
            message = format('%s is the database''s time: set it to now(), or leave it out', name);
    end if;
end $$;
