-- Fails one attempt: the delivery is retried by its retry policy, or dead-lettered when that is
-- used up.
-- Returns the time of the retry; null: never. Repeating it changes nothing.
-- retry_in: instead of the policy's delay. Raises QU020, QU021; see finish.
create or replace function headrace.fail(
    namespace text, event bigint, attempt int, error text, queue text default 'main', lease bigint default null,
    retry_in interval default null, ms int default null, code int default null,
    lease_token text default null
) returns timestamptz
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v headrace.verdict;
begin
    select * into v from headrace.finish(
        fail.namespace, fail.queue, array[fail.event], array[fail.attempt], array[fail.lease], array[fail.ms],
        array[fail.code], jsonb_build_object('1', jsonb_strip_nulls(jsonb_build_object(
            'action', 'fail', 'error', fail.error, 'retry_in', extract(epoch from fail.retry_in)))),
            array[fail.lease_token]);
    perform headrace._raise_unless_counted(v);
    return v.retry_at;
end $$;
