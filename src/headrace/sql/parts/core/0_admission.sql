-- The namespaces that the caller is bound to; null: the caller is not bound. The same as
-- headrace.admission, on which no view here may depend.
create or replace view core.admission as
with judged as (
    select w.n, r.oid as role,
           r.rolsuper or pg_has_role(r.oid, (select s.nspowner from pg_namespace s where s.nspname = 'headrace'),
                                     'USAGE') as free
    from (values (1, nullif(current_setting('role'), 'none')), (2, session_user::text)) w(n, name)
    join pg_roles r on r.rolname = w.name
),
found as (
    select j.n, b.namespaces
    from judged j join headrace.bound_roles b on pg_has_role(
        j.role, b.role, case when j.n = 2 and exists (select from judged s where s.n = 1) then 'MEMBER'
                             else 'USAGE' end)
    where not exists (select from judged f where f.free and f.n <= j.n)
)
select case when exists (select from found)
       then array(select distinct s.name from found f cross join lateral unnest(f.namespaces) s(name)
                  where f.n = (select min(o.n) from found o)) end as namespaces;
