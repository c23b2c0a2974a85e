-- The problem of a progress: unreadable for some JSON readers, or too large; null: none.
create or replace function headrace._progress_problem(progress jsonb) returns text
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select headrace._document_problem(progress, 'the progress') $$;
