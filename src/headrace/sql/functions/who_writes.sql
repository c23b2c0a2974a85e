-- Says which transaction it is, of some, that nobody can pass before it ends: the oldest one. Not whose: a tenant would read the
-- names of others' users and programs. Who may look into pg_stat_activity finds them by the process.
create or replace function headrace.who_writes(transactions text[]) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select case when l.pid is null then 'a transaction that is prepared for a commit in two phases may still publish'
                else format('process %s has a transaction open%s that may still publish', l.pid,
                            ' since ' || headrace.iso(a.xact_start)) end
    from pg_locks l left join pg_stat_activity a on a.pid = l.pid
    where l.virtualtransaction = any (transactions) and l.locktype = 'relation'
    order by l.pid is null desc, a.xact_start limit 1
$$;
