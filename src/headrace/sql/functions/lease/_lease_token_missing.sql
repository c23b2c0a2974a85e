-- The problem of a call without a lease token, where the queue requires one; see _raise_problem.
create or replace function headrace._lease_token_missing(q headrace.queues) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select format('QU001 the queue %L requires the lease_token that the claim returned (require_lease_token)', q.name)
$$;
