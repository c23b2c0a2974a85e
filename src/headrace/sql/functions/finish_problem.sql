-- What is wrong with the arguments of finish; null: nothing.
create function headrace.finish_problem(events bigint[], attempts int[], leases bigint[], ms int[], codes int[], others jsonb) returns text
language sql immutable parallel safe
as $$
    select case
        when events is null or attempts is null or cardinality(events) <> cardinality(attempts)
             or cardinality(events) <> cardinality(coalesce(leases, events))
             or cardinality(events) <> cardinality(coalesce(ms, attempts))
             or cardinality(events) <> cardinality(coalesce(codes, attempts))
            then 'QU001 events, attempts, leases, ms and codes are arrays of one length'
        when others is not null and (
             jsonb_typeof(others) <> 'object'
             or others @? '$.* ? (@.type() != "object" || !(@.action == "fail" || @.action == "release" || @.action == "complete"))'
             or others @? '$.* ? (exists(@.retry_in) && !(@.retry_in >= 0 && @.retry_in <= 315360000))'
             or others @? '$.* ? (exists(@.max_retries) && !(@.max_retries >= 0 && @.max_retries <= 1000))'
             or others @? '$.* ? (exists(@.status) && !(@.status == "FAILED" || @.status == "COMPLETED_WITH_ERRORS"))')
            then 'QU001 each of others has an action (complete, fail or release) and, for fail, error, retry_in, max_retries, backoff, reason, status'
    end
$$;
