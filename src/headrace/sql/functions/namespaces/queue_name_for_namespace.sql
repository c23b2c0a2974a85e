-- The queue name that the documents give a namespace. People and bridges use it; nothing here
-- depends on it.
create or replace function headrace.queue_name_for_namespace(p_namespace text) returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select 'core_events_' || replace(p_namespace, '-', '_') $$;
