-- A stored JSON value for output: the value itself, or, where it was written without the functions
-- and some JSON readers could not read it, an object that says so: {"unreadable": "…"}. An
-- unreadable row thus spoils no list that it is in.
create or replace function headrace._readable_json(value jsonb) returns jsonb
language plpgsql immutable parallel safe strict
set search_path = pg_catalog, pg_temp
as $$
declare
    problem constant text := headrace._json_problem(value);
begin
    return case when problem is null then value
                else jsonb_build_object('unreadable', replace(substr(problem, 7), 'the payload', 'it')) end;
end $$;
