-- What is wrong with a call that has no lease token, where the queue requires one; see refuse.
create or replace function headrace.token_missing(q headrace.queues) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select format('QU001 the queue %L requires the lease_token that the claim returned (require_lease_token)', q.name)
$$;
