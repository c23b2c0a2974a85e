-- Describes the oldest of some transactions, which blocks readers until it ends. The text does not
-- name its user: a tenant would read the names of others' users and programs. An operator with
-- access to pg_stat_activity finds them by the process.
create or replace function headrace._oldest_writer(transactions text[]) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select case when l.pid is null then 'a transaction that is prepared for a commit in two phases may still publish'
                else format('process %s has a transaction open%s that may still publish', l.pid,
                            ' since ' || headrace._iso(a.xact_start)) end
    from pg_locks l left join pg_stat_activity a on a.pid = l.pid
    where l.virtualtransaction = any (transactions) and l.locktype = 'relation'
    order by l.pid is null desc, a.xact_start limit 1
$$;
