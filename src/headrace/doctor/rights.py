"""Checks of who could have something run with the rights of others: owners, and search paths of functions."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.doctor.findings import NEEDS_SCHEMA, Verdict, fine, problem, warning
from headrace.doctor.patient import Patient
from headrace.doctor.schema import AGAIN, ours

_SCHEMAS = """
select n.nspname::text as name, pg_get_userbyid(n.nspowner)::text as owner, r.rolsuper as mighty,
       (select m.rolsuper from pg_roles m where m.rolname = current_user) as i_am_mighty
from pg_namespace n join pg_roles r on r.oid = n.nspowner where n.nspname = any (%(schemas)s::text[])
"""
# As headrace.ownership has it: an object's owner is in pg_shdepend, unless it is the first superuser.
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


def owners(patient: Patient) -> Iterator[Verdict]:
    schemas = ours(patient)
    if not schemas:
        yield NEEDS_SCHEMA
        return
    found = [*_strangers(patient, schemas), *_lower(patient, schemas)]
    yield from found
    if not found:
        yield fine("all of it belongs to one role")


def _strangers(patient: Patient, schemas: list[str]) -> Iterator[Verdict]:
    for one in patient.rows(_STRANGERS, schemas=schemas):
        yield problem(
            f"{one.thing} belongs to the role {one.owner}, and might run with the rights of others: migrate refuses it",
            f"drop {one.thing}  -- or: reassign owned by {patient.identifier(one.owner)}",
        )


def _lower(patient: Patient, schemas: list[str]) -> Iterator[Verdict]:
    """A superuser who calls a function trusts its owner with everything."""
    for one in patient.rows(_SCHEMAS, schemas=schemas):
        if one.i_am_mighty and not one.mighty:
            yield warning(
                f"the schema {one.name} belongs to {one.owner}, and you are a superuser: its functions may do all that you may",
                f"connect as {one.owner}",
            )


def search_paths(patient: Patient) -> Iterator[Verdict]:
    schemas = ours(patient)
    if not schemas:
        yield NEEDS_SCHEMA
        return
    loose = [one.name for one in patient.rows(_LOOSE, schemas=schemas)]
    for name in loose:
        yield problem(
            f"{name} runs with the rights of its owner under the search_path of its caller, who may put other functions there",
            AGAIN,
        )
    if not loose:
        yield fine("fixed in every function that runs with the rights of its owner")
