-- The tokens that are valid now, for the servers that check tokens: a server asks every few
-- seconds.
create or replace function headrace.live_tokens()
returns table (digest bytea, name text, scopes text[], namespaces text[])
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select headrace._check_access(null);
    select k.digest, k.name, k.scopes, k.namespaces
    from headrace.api_tokens k
    where k.revoked_at is null and (k.expires_at > headrace._now()) is not false
$$;
