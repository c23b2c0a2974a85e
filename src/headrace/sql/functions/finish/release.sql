-- Hands one delivery back unfinished: ready again at once, or, if attempts before this one were
-- released too, after a delay (see _release_delays); nothing charged. Repeating it changes nothing.
-- delay: a snooze, ready again after this time (at the earliest after 100 ms), in the log as SNOOZED
-- with the time; beyond max_snoozes of the queue it is a failure.
-- Raises QU001, QU020, QU021; see finish.
create or replace function headrace.release(namespace text, event bigint, attempt int, queue text default 'main',
                                            lease bigint default null,
                                            lease_token text default null, delay interval default null) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform headrace._raise_unless_counted(v) from headrace.finish(
        release.namespace, release.queue, array[release.event], array[release.attempt], array[release.lease],
        others => jsonb_build_object('1', jsonb_strip_nulls(jsonb_build_object(
            'action', 'release', 'delay', extract(epoch from release.delay)))),
        lease_tokens => array[release.lease_token]) v;
end $$;
