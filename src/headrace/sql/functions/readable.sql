-- A stored JSON value as it is told: the value itself, or, where it was written past the functions and not everybody could read it, an
-- object that says so: {"unreadable": "…"}. So a row that is unreadable spoils no list that it is in.
create or replace function headrace.readable(value jsonb) returns jsonb
language plpgsql immutable parallel safe strict
set search_path = pg_catalog, pg_temp
as $$
declare
    problem constant text := headrace.unreadable(value);
begin
    return case when problem is null then value else jsonb_build_object('unreadable', replace(substr(problem, 7), 'the payload', 'it')) end;
end $$;
