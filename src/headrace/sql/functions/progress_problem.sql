-- What makes a progress unreadable for somebody, or too large; null: nothing.
create or replace function headrace.progress_problem(progress jsonb) returns text
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select headrace.document_problem(progress, 'the progress') $$;
