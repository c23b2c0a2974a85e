-- Makes the rows of groups that have none, and returns the numbers of those that it made: the
-- caller has them locked. Other claims make the others now, or have just made them.
create or replace function headrace._make_limit_groups(
    q headrace.queues, members headrace.membership[], but int[]
) returns int[]
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set lock_timeout = '1ms'
as $$
#variable_conflict use_column
declare
    made int[];
begin
    with made as (
        insert into headrace.limit_groups (queue, scope, name)
        select q.id, g.scope, g.name
        from (select distinct m.scope, m.name from unnest(members) m where m.n <> all (but)) g
        where not exists (select from headrace.limit_groups f
                          where f.queue = q.id and f.scope = g.scope and f.name = g.name)
        order by g.scope, g.name
        on conflict do nothing
        returning scope, name
    )
    select array_agg(distinct m.n) into made
    from made f join unnest(members) m on m.scope = f.scope and m.name = f.name;
    return coalesce(made, '{}');
exception when lock_not_available then
    if (select count(distinct m.n) from unnest(members) m where m.n <> all (but)) = 1 then
        return '{}';
    end if;
    -- One group has rolled back all of them: make them one by one.
    return array(
        select unnest(headrace._make_limit_groups(q, array[m], but))
        from (select distinct on (o.n) o as m from unnest(members) o where o.n <> all (but) order by o.n) m);
end $$;
