-- The name of a namespace's queue.
create or replace function core.queue_name_for_namespace(p_namespace text) returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select 'core_events_' || replace(p_namespace, '-', '_') $$;
