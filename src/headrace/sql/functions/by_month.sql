-- Whether there are so many months that each call is planned for those that it needs: see plan_by_month, which says so by replacing this
-- function. Immutable, and without settings, so that a hot function pays nothing for asking: the answer becomes part of its plan.
create or replace function headrace.by_month() returns boolean
language sql immutable parallel safe
as $$ select false $$;
