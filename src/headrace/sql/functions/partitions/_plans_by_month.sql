-- Whether there are so many months that each call is planned for the months that it needs: see
-- _plan_by_month, which changes the answer by replacing this function. Immutable, and without
-- settings, so that a hot function calls it for free: the answer becomes part of its plan.
create or replace function headrace._plans_by_month() returns boolean
language sql immutable parallel safe
as $$ select false $$;
