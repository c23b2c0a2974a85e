-- Takes the lock under which roles are bound. Waits for transactions that are making a namespace or
-- a queue, as long as the caller's lock_timeout allows. Raises 55P03 after that, and names the
-- sessions that hold the lock.
create or replace function headrace._lock_bound_roles() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    others text;
begin
    lock table headrace.bound_roles in share row exclusive mode;
exception when lock_not_available then
    select string_agg(format('process %s (role %s, application %L)', a.pid, coalesce(a.usename, '?'),
                             a.application_name), ', ') into others
    from pg_locks l join pg_stat_activity a on a.pid = l.pid
    where l.relation = 'headrace.bound_roles'::regclass and l.granted and l.mode like '%Exclusive%'
      and l.pid <> pg_backend_pid();
    raise exception using errcode = '55P03',
        message = format('a transaction that makes a namespace or a queue is open: %s',
                         coalesce(others, 'it has just ended, try again')),
        hint = 'pg_terminate_backend ends it';
end $$;
