-- Who paused or drained a queue last, and when, among the last thousand entries of the log of
-- administration of its namespace.
create or replace function headrace._last_state_change(home int, queue text, out at timestamptz, out actor text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select a.at, a.actor from (
        select a.* from headrace.admin_log a where a.namespace = home order by a.id desc limit 1000
    ) a
    where a.target = _last_state_change.queue and a.action in ('pause', 'drain')
    order by a.id desc limit 1
$$;
