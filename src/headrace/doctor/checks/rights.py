"""Checks of rights: owners of objects, and search paths of functions, that let a role act as
another."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.doctor.checks.schema import AGAIN, ours
from headrace.doctor.database import Database
from headrace.doctor.findings import NEEDS_SCHEMA, CheckResult, fine, problem, warning

_SCHEMAS = """
select n.nspname::text as name, pg_get_userbyid(n.nspowner)::text as owner, r.rolsuper as mighty,
       (select m.rolsuper from pg_roles m where m.rolname = current_user) as i_am_mighty
from pg_namespace n join pg_roles r on r.oid = n.nspowner where n.nspname = any (%(schemas)s::text[])
"""
# The same as in headrace.install.ownership: pg_shdepend has an object's owner, unless that is the
# first superuser.
_STRANGERS = """
select pg_describe_object(d.classid, d.objid, 0) as thing, pg_get_userbyid(s.refobjid)::text as owner
from pg_namespace n
join pg_depend d on d.refclassid = 'pg_namespace'::regclass and d.refobjid = n.oid
join pg_shdepend s on s.classid = d.classid and s.objid = d.objid and s.objsubid = 0 and s.deptype = 'o'
join pg_database b on b.oid = s.dbid and b.datname = current_database()
where n.nspname = any (%(schemas)s::text[]) and s.refobjid <> n.nspowner
union all
select format('trigger %%I on %%s', t.tgname, t.tgrelid::regclass), pg_get_userbyid(p.proowner)::text
from pg_namespace n
join pg_class c on c.relnamespace = n.oid
join pg_trigger t on t.tgrelid = c.oid and not t.tgisinternal
join pg_proc p on p.oid = t.tgfoid
where n.nspname = any (%(schemas)s::text[]) and p.proowner <> n.nspowner
order by 1 limit 3
"""
_LOOSE = """
select p.oid::regprocedure::text as name
from pg_proc p join pg_namespace n on n.oid = p.pronamespace
where n.nspname = any (%(schemas)s::text[]) and p.prosecdef
  and not coalesce('search_path=pg_catalog, pg_temp' = any (p.proconfig), false)
order by 1 limit 3
"""


def owners(db: Database) -> Iterator[CheckResult]:
    schemas = ours(db)
    if not schemas:
        yield NEEDS_SCHEMA
        return
    found = [*_strangers(db, schemas), *_lower(db, schemas)]
    yield from found
    if not found:
        yield fine("all objects belong to one role")


def _strangers(db: Database, schemas: list[str]) -> Iterator[CheckResult]:
    for one in db.rows(_STRANGERS, schemas=schemas):
        yield problem(
            f"{one.thing} belongs to the role {one.owner}, and might run with the rights of "
            "other roles: migrate refuses it",
            f"drop {one.thing}  -- or: reassign owned by {db.identifier(one.owner)}",
        )


def _lower(db: Database, schemas: list[str]) -> Iterator[CheckResult]:
    """A superuser that calls a function trusts its owner with everything."""
    for one in db.rows(_SCHEMAS, schemas=schemas):
        if one.i_am_mighty and not one.mighty:
            yield warning(
                f"the schema {one.name} belongs to {one.owner}, and you are a superuser: its "
                "functions run with all your rights",
                f"connect as {one.owner}",
            )


def search_paths(db: Database) -> Iterator[CheckResult]:
    schemas = ours(db)
    if not schemas:
        yield NEEDS_SCHEMA
        return
    loose = [one.name for one in db.rows(_LOOSE, schemas=schemas)]
    for name in loose:
        yield problem(
            f"{name} runs with the rights of its owner under the search_path of its caller, "
            "which may put other functions there",
            AGAIN,
        )
    if not loose:
        yield fine("fixed in every function that runs with the rights of its owner")
