-- The queue name that the documents give a namespace; for people and for bridges, nothing here depends on it.
create or replace function headrace.queue_name_for_namespace(p_namespace text) returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select 'core_events_' || replace(p_namespace, '-', '_') $$;
