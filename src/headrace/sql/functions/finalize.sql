-- Ends one delivery for good, whatever its retry policy: COMPLETED without errors, COMPLETED_WITH_ERRORS with some,
-- or, by success, COMPLETED or FAILED. What did not succeed is kept as a dead letter. Repeating it changes nothing.
-- Raises QU020, QU021; see finish.
create or replace function headrace.finalize(
    namespace text, event bigint, attempt int, errors text[] default '{}', success boolean default null,
    queue text default 'main', lease bigint default null, ms int default null, code int default null,
    lease_token text default null
) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform headrace.enforce(v) from headrace.finish(
        finalize.namespace, finalize.queue, array[finalize.event], array[finalize.attempt], array[finalize.lease],
        array[finalize.ms], array[finalize.code],
        case when coalesce(success, coalesce(cardinality(errors), 0) = 0) then null
             else jsonb_build_object('1', jsonb_build_object(
                 'action', 'fail', 'error', array_to_string(errors, E'\n'), 'reason', 'Handler error',
                 'status', case when success is null then 'COMPLETED_WITH_ERRORS' else 'FAILED' end)) end,
        array[finalize.lease_token]) v;
end $$;
