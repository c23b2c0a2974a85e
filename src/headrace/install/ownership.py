"""Checks the owners of all objects in Headrace's schemas: an object of another role would run with
the rights of the migrating user.

migrate does not adopt a schema `headrace` that a lower role has prepared, nor its tables, functions
and triggers. It trusts two kinds of roles: the migrating user, and superusers, who need no trick.
"""

from __future__ import annotations

from headrace.install.parts import PARTS

SEARCH_PATH = "set local search_path = pg_catalog, pg_temp"
"""Runs before anything else: under the user's own path a name without a schema may be a function of
any role."""

LOWER_OWNER = """\
select f.owner, f.what
from (
    select 1 as place, n.nspowner as role, 'the schema headrace'::pg_catalog.text as what from pg_catalog.pg_namespace n
    where n.nspname operator(pg_catalog.=) 'headrace'
    union all
    select 2, s.refobjid, pg_catalog.pg_describe_object(s.classid, s.objid, 0)
    from pg_catalog.pg_namespace n
    join pg_catalog.pg_depend d on d.refclassid operator(pg_catalog.=) 'pg_catalog.pg_namespace'::pg_catalog.regclass
                               and d.refobjid operator(pg_catalog.=) n.oid
    join pg_catalog.pg_shdepend s on s.classid operator(pg_catalog.=) d.classid and s.objid operator(pg_catalog.=) d.objid
                                 and s.objsubid operator(pg_catalog.=) 0 and s.deptype operator(pg_catalog.=) 'o'
    join pg_catalog.pg_database b on b.oid operator(pg_catalog.=) s.dbid and b.datname operator(pg_catalog.=) pg_catalog.current_database()
    where n.nspname operator(pg_catalog.=) 'headrace'
) x
join pg_catalog.pg_roles o on o.oid operator(pg_catalog.=) x.role and not o.rolsuper
cross join lateral (select o.rolname::pg_catalog.text as owner, x.what) f
where (select m.rolsuper from pg_catalog.pg_roles m where m.rolname operator(pg_catalog.=) current_user)
order by x.place
limit 1"""
"""For a superuser: one object in the schema headrace that belongs to a lower role, first the schema
itself. Such an object would run with all rights."""

# pg_shdepend has the owner of any kind of object, except those of the first superuser.
_CHECK = """\
do $check$
declare
    me constant oid := (select r.oid from pg_roles r where r.rolname = current_user);
    mighty constant boolean := (select r.rolsuper from pg_roles r where r.oid = me);
    trusted constant oid[] := me || array(select r.oid from pg_roles r where r.rolsuper);
    ours text[];
    other record;
begin
    {which}
    if coalesce(cardinality(ours), 0) = 0 then
        return;
    end if;
    for other in
        select n.nspname as name, pg_get_userbyid(n.nspowner) as owner from pg_namespace n
        where n.nspname = any (ours) and n.nspowner <> me and (n.nspowner <> all (trusted) or not mighty)
    loop
        raise exception using errcode = 'QU041', message = format(
            'The schema %I belongs to the role %I, and you are %I: '
            'migrate as %I, or drop the schema if it is not Headrace''s.',
            other.name, other.owner, current_user, other.owner);
    end loop;
    for other in
        -- Other roles own few objects, or none: the query looks for those first.
        with strange as materialized (
            select s.classid, s.objid, s.refobjid as owner from pg_shdepend s
            where s.deptype = 'o' and s.objsubid = 0 and s.refobjid <> all (trusted)
              and s.dbid = (select b.oid from pg_database b where b.datname = current_database())
        )
        select pg_describe_object(s.classid, s.objid, 0) as name, n.nspname as home, pg_get_userbyid(s.owner) as owner
        from strange s
        join pg_depend d on d.classid = s.classid and d.objid = s.objid and d.refclassid = 'pg_namespace'::regclass
        join pg_namespace n on n.oid = d.refobjid
        where n.nspname = any (ours)
    loop
        raise exception using errcode = 'QU041', message = format(
            'In the schema %I, %s belongs to the role %I and might run with your rights: '
            'drop it, then migrate again.',
            other.home, other.name, other.owner);
    end loop;
    for other in
        select t.tgname as name, t.tgrelid::regclass as place, pg_get_userbyid(p.proowner) as owner
        from pg_namespace n
        join pg_class c on c.relnamespace = n.oid
        join pg_trigger t on t.tgrelid = c.oid and not t.tgisinternal
        join pg_proc p on p.oid = t.tgfoid
        where n.nspname = any (ours) and p.proowner <> all (trusted)
    loop
        raise exception using errcode = 'QU041', message = format(
            'The trigger %I on %s runs a function of the role %I with your rights: '
            'drop it, then migrate again.',
            other.name, other.place, other.owner);
    end loop;
    for other in
        select e.evtname as name, pg_get_userbyid(p.proowner) as owner
        from pg_event_trigger e join pg_proc p on p.oid = e.evtfoid
        where mighty and e.evtenabled <> 'D' and p.proowner <> all (trusted)
    loop
        raise exception using errcode = 'QU041', message = format(
            'The event trigger %I runs a function of the role %I with your rights: '
            'disable it, then migrate again.',
            other.name, other.owner);
    end loop;
end $check$;
"""
_PARTS = ", ".join(f"('{part}', '{schema}')" for part, schema in PARTS.items())
# The list of the other schemas is a table of the schema headrace, which must be trusted first.
_INSTALLED = f"""\
if to_regclass('headrace.optional') is not null then
        ours := array(select p.home from headrace.optional o join (values {_PARTS}) p(name, home) on p.name = o.name);
    end if;"""
CHECK = _CHECK.format(which="ours := '{headrace}';") + _CHECK.format(which=_INSTALLED)
"""SQL that raises QU041 if another role's object is in one of our schemas, or would run when a
superuser changes them (an event trigger)."""
