-- Completes one attempt. Repeating it changes nothing.
-- Raises QU020 when the attempt is no longer the current one, QU021 when it has ended otherwise;
-- see finish.
create or replace function headrace.complete(
    namespace text, event bigint, attempt int, queue text default 'main', lease bigint default null,
    ms int default null, code int default null, lease_token text default null
) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform headrace._raise_unless_counted(v) from headrace.finish(
        complete.namespace, complete.queue, array[complete.event], array[complete.attempt], array[complete.lease],
        array[complete.ms], array[complete.code], lease_tokens => array[complete.lease_token]) v;
end $$;
