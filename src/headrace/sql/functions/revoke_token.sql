-- Revokes a token: within seconds no server takes it any more. Its name is free again. actor: as in create_token.
-- Raises QU014 when there is none of this name.
create or replace function headrace.revoke_token(name text, actor text default null) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    perform headrace.admit(null);
    update headrace.api_tokens k
    set revoked_at = headrace.now(), revoked_by = headrace.actor(revoke_token.actor)
    where k.name = revoke_token.name and k.revoked_at is null;
    if not found then
        raise exception using errcode = 'QU014', message = format('there is no token %L', revoke_token.name);
    end if;
    perform headrace.log_action(null, revoke_token.actor, 'revoke_token', revoke_token.name);
end $$;
