-- The problem with a new token; null: none.
create or replace function headrace._token_problem(
    name text, digest bytea, scopes text[], namespaces text[]
) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(
        headrace._name_problem('token', _token_problem.name),
        case
            when digest is null or length(digest) <> 32 then 'QU001 the digest of a token is its SHA-256'
            when coalesce(cardinality(scopes), 0) = 0 or not scopes <@ '{publish,consume,read,admin}'
                then 'QU001 the scopes of a token are some of publish, consume, read and admin'
            when cardinality(namespaces) = 0 then 'QU001 a token is limited to one namespace or more, or to none at all'
            when cardinality(namespaces) > 1000 then 'QU001 a token is limited to at most 1000 namespaces'
        end,
        (select min(headrace._name_problem('namespace', coalesce(n, ''))) from unnest(namespaces) n))
$$;
