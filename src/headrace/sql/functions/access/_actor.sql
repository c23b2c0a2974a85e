-- The actor that the log names: the caller's role. The name that the caller gives takes its place
-- only if the role has the owner's rights: such a role could write the log itself, and a server
-- names the token in this way. For other roles _log_action keeps the given name in the details.
-- Raises QU001. Only for functions that run as the owner.
create or replace function headrace._actor(said text) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    role constant text := headrace._caller_role();
begin
    if length(said) > 200 then
        raise exception using errcode = 'QU001', message = 'the name of an actor has at most 200 characters';
    end if;
    return case when said <> '' and pg_has_role(role, current_user, 'member') then said else role end;
end $$;
