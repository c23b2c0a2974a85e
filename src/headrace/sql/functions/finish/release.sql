-- Hands one delivery back unfinished: ready again at once, or, if attempts before this one were
-- released too, after a delay (see _release_delays); nothing charged. Repeating it changes nothing.
-- Raises QU020, QU021; see finish.
create or replace function headrace.release(namespace text, event bigint, attempt int, queue text default 'main',
                                            lease bigint default null,
                                            lease_token text default null) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform headrace._raise_unless_counted(v) from headrace.finish(
        release.namespace, release.queue, array[release.event], array[release.attempt], array[release.lease],
        others => '{"1": {"action": "release"}}', lease_tokens => array[release.lease_token]) v;
end $$;
