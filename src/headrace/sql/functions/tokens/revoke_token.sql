-- Revokes a token: within seconds no server accepts it any more. Its name is free again. actor: as
-- in create_token.
-- Raises QU014 when no token has this name.
create or replace function headrace.revoke_token(name text, actor text default null) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    perform headrace._check_access(null);
    update headrace.api_tokens k
    set revoked_at = headrace._now(), revoked_by = headrace._actor(revoke_token.actor)
    where k.name = revoke_token.name and k.revoked_at is null;
    if not found then
        raise exception using errcode = 'QU014', message = format('there is no token %L', revoke_token.name);
    end if;
    perform headrace._log_action(null, revoke_token.actor, 'revoke_token', revoke_token.name);
end $$;
