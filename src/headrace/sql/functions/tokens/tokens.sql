-- The tokens of the HTTP API, by name: their scopes and expiry; includes revoked and expired
-- tokens.
create or replace function headrace.tokens()
returns table (id int, name text, scopes text[], namespaces text[], live boolean, created_at timestamptz,
               created_by text, expires_at timestamptz, revoked_at timestamptz, revoked_by text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select headrace._check_access(null);
    select k.id, k.name, k.scopes, k.namespaces, k.revoked_at is null and (k.expires_at > headrace._now()) is not false,
           k.created_at, k.created_by, k.expires_at, k.revoked_at, k.revoked_by
    from headrace.api_tokens k
    order by k.name, k.id
$$;
