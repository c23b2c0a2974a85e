-- Raises QU001 for a sender's time that is not valid. The sender's time is stored as it was
-- written; the database's own time beside it decides.
create or replace function pgmq._check_time(name text, said jsonb) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    if jsonb_typeof(said) = 'null' or said is null then
        return;
    elsif jsonb_typeof(said) = 'string'
          and said #>> '{}' ~ E'^\\d{4}-\\d\\d-\\d\\d[T ]\\d\\d:\\d\\d(:\\d\\d(\\.\\d+)?)?(Z|[+-]\\d\\d(:?\\d\\d)?)$'
              then
        perform (said #>> '{}')::timestamptz;
        return;
    end if;
    raise exception using errcode = 'QU001',
        message = format('%s is a time with its zone, as in 2030-01-31T12:00:00Z', name);
exception when datetime_field_overflow or invalid_datetime_format or invalid_time_zone_displacement_value then
    raise exception using errcode = 'QU001',
        message = format('%s is a time with its zone, as in 2030-01-31T12:00:00Z', name);
end $$;
