-- Who does what the log is to tell: the caller's role. What the caller says stands in its place only if the role has the owner's
-- rights: it could write the log itself, and so does a server that names the token. See log_action for what becomes of it else.
-- Raises QU001. Only for functions that run as the owner.
create or replace function headrace.actor(said text) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    role constant text := headrace.caller();
begin
    if length(said) > 200 then
        raise exception using errcode = 'QU001', message = 'the name of an actor has at most 200 characters';
    end if;
    return case when said <> '' and pg_has_role(role, current_user, 'member') then said else role end;
end $$;
