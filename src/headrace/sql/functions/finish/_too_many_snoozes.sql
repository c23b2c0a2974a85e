-- The error of a snooze that is one too many: see _limited_snoozes. By it a repeated finish finds its
-- first answer again.
create or replace function headrace._too_many_snoozes() returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select 'It was snoozed more often than the max_snoozes of its queue allow' $$;
