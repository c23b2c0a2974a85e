-- Makes a token of the HTTP API and returns its number. The caller makes the token itself, of 256
-- random bits, and passes only its SHA-256: this database, its log and its backups never contain
-- the token.
--     scopes       publish, consume (claim and finish), read, admin (full access)
--     namespaces   the namespaces it is valid for, also if they do not exist yet; null: all of them
--     expires_at   null: never
-- actor: the name in the log (see _log_action); default: the caller's role.
-- Raises QU001, also when an unrevoked token has this name.
create or replace function headrace.create_token(
    name text, digest bytea, scopes text[], namespaces text[] default null, expires_at timestamptz default null,
    actor text default null
) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    t timestamptz := headrace._now();
    made int;
begin
    perform headrace._check_access(null);
    perform headrace._raise_problem(headrace._token_problem(create_token.name, create_token.digest, create_token.scopes,
                                                            create_token.namespaces), 0);
    if create_token.expires_at > t + interval '1000 years' then
        raise exception using errcode = 'QU001',
            message = 'a token expires within a thousand years, or, without a time, never';
    elsif create_token.expires_at <= t then
        raise exception using errcode = 'QU001', message = 'a token expires in the future';
    end if;
    insert into headrace.api_tokens (name, digest, scopes, namespaces, created_at, created_by, expires_at)
    values (create_token.name, create_token.digest,
            array(select distinct s from unnest(create_token.scopes) s order by s),
            case when create_token.namespaces is not null then array(select distinct n
                                                                     from unnest(create_token.namespaces) n
                                                                     order by n) end,
            t, headrace._actor(create_token.actor), create_token.expires_at)
    on conflict do nothing
    returning id into made;
    if made is null then
        raise exception using errcode = 'QU001',
            message = format('there is a token %L already; revoke it first, or choose another name', create_token.name);
    end if;
    perform headrace._log_action(null, create_token.actor, 'create_token', create_token.name, jsonb_build_object(
        'scopes', create_token.scopes, 'namespaces', create_token.namespaces, 'expires_at', create_token.expires_at));
    return made;
end $$;
