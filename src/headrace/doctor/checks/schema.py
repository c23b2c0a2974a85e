"""Checks of Headrace's schema: its release, its grants, and its partition for next month."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import psycopg

from headrace.doctor.database import Database, span
from headrace.doctor.findings import NEEDS_SCHEMA, CheckResult, fine, problem, warning
from headrace.errors import SequenceBehind
from headrace.install import migrate
from headrace.install.parts import PARTS, digest_of
from headrace.model.attention import lock_in_the_way

AGAIN = 'headrace migrate --sql | psql "$HEADRACE_DSN"'
"""Runs the whole release again, where migrate would find it installed."""
TICK, UPKEEP = "select headrace.tick()", "select headrace.tick(upkeep => true)"
ROLES = ("headrace_publisher", "headrace_worker", "headrace_reader", "headrace_admin")
NEEDED = {"pg_cron": "pg_cron", "partman": "pg_partman"}
"""The extensions that optional parts cannot do without."""

_THERE = """
select exists (select from pg_namespace where nspname = 'headrace') as schema,
       exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
               where n.nspname = 'headrace' and c.relname = 'optional') as optional
"""
# A role that may not see where pg_cron lives gets no report that it is missing.
_CRON_ELSEWHERE = """
select not pg_has_role('pg_read_all_settings', 'usage')
       or exists (select from pg_settings s where s.name = 'cron.database_name' and s.setting <> current_database()) as so
"""
_PUBLIC = """
select 'the schema' as thing from pg_namespace n
where n.nspname = 'headrace' and has_schema_privilege('public', n.oid, 'usage')
union all
select p.oid::regprocedure::text from pg_proc p join pg_namespace n on n.oid = p.pronamespace
where n.nspname = 'headrace' and has_function_privilege('public', p.oid, 'execute')
order by 1 desc limit 3
"""
_CREATORS = """
select coalesce(r.rolname, 'public')::text as role
from pg_namespace n
cross join lateral aclexplode(n.nspacl) a
left join pg_roles r on r.oid = a.grantee
where n.nspname = 'headrace' and a.grantee <> n.nspowner and a.privilege_type = 'CREATE'
order by 1 limit 3
"""
_WRITERS = """
select c.relname as name, coalesce(r.rolname, 'public') as role
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
cross join lateral aclexplode(c.relacl) a
left join pg_roles r on r.oid = a.grantee
where n.nspname = 'headrace' and a.grantee <> c.relowner and a.privilege_type in ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE')
group by 1, 2 order by 2, 1 limit 3
"""
_BOUNDS = """
select p.relname as parent, pg_get_expr(c.relpartbound, c.oid) as bounds
from pg_class p
join pg_namespace n on n.oid = p.relnamespace
join pg_inherits i on i.inhparent = p.oid
join pg_class c on c.oid = i.inhrelid
where n.nspname = 'headrace' and p.relkind = 'p' and p.relname in ('events', 'outcomes', 'errors')
"""
_COVERED = """
select b.parent, bool_or(now() >= b.low and now() < b.high) as this,
       bool_or(now() + interval '1 month' >= b.low and now() + interval '1 month' < b.high) as next, max(b.high) as ends_at
from (select o.parent, (regexp_match(o.bounds, 'FROM \\(''([^'']+)''\\)'))[1]::timestamptz as low,
             (regexp_match(o.bounds, 'TO \\(''([^'']+)''\\)'))[1]::timestamptz as high
      from ({bounds}) o) b
group by b.parent order by b.parent
"""
_LOCKS = """
select count(*) as months, coalesce(sum(1 + (select count(*) from pg_index x where x.indrelid = i.inhrelid)), 0) as relations,
       current_setting('max_locks_per_transaction')::int as room
from pg_class p
join pg_namespace n on n.oid = p.relnamespace
join pg_inherits i on i.inhparent = p.oid
where n.nspname = 'headrace' and p.relkind = 'p' and p.relname in ('events', 'outcomes', 'errors')
"""
_TICKING = (
    "select t.stopped, t.overdue, t.problem, t.at - t.last_at as silent from headrace.ticking() t"
)


def ours(db: Database) -> list[str]:
    """The schemas that are Headrace's here, its own first."""
    there = db.row(_THERE)
    if not there.schema:
        return []
    may = "select has_table_privilege('headrace.optional', 'select') as may"
    if not there.optional or db.distrusts or not db.row(may).may:
        return ["headrace"]
    parts = db.rows("select name from headrace.optional")
    return [
        "headrace",
        *(PARTS[one.name] for one in parts if one.name in PARTS),
    ]


def migration(db: Database) -> Iterator[CheckResult]:
    if not db.row(_THERE).schema:
        yield problem("this database has no Headrace schema", "headrace migrate")
        return
    major, minor = db.row("select major, minor from headrace.version()")
    newest = migrate.newest()
    if _is_of_development(db):
        yield problem(
            "the schema is a development schema, which nothing upgrades; its events go with it",
            "drop schema headrace cascade  -- then: headrace migrate",
        )
    elif (major, minor) > (migrate.SCHEMA_MAJOR, newest):
        yield problem(
            f"the schema (version {major}.{minor}) is of a newer release than this one "
            f"({migrate.SCHEMA_MAJOR}.{newest})",
            "pip install --upgrade headrace",
        )
    elif (major, minor) < (migrate.SCHEMA_MAJOR, newest) or not _is_this_release(db):
        yield warning(
            f"the schema (version {major}.{minor}) is of another release than this one",
            "headrace migrate",
        )
    else:
        yield fine(f"version {major}.{minor}, of this release")


def _is_of_development(db: Database) -> bool:
    """Whether other files than this release's made version 1 of the tables."""
    may = "select has_table_privilege('headrace.migrations', 'select') as may"
    if not db.row(may).may:
        return False
    first = db.rows("select name from headrace.migrations where version = 1")
    return bool(first != [(migrate.schema_name(),)])


def _is_this_release(db: Database) -> bool:
    """The functions may differ though the tables do not. A role without the right to look must
    rely on the version number."""
    may = "select has_table_privilege('headrace.release', 'select') as may"
    if not db.row(may).may:
        return True
    return bool(db.rows("select digest from headrace.release") == [(migrate.release(),)])


def extensions(db: Database) -> Iterator[CheckResult]:
    if not db.row(_THERE).optional:
        yield NEEDS_SCHEMA
        return
    parts = {one.name: one.digest for one in db.rows("select name, digest from headrace.optional")}
    there = {one.name for one in db.rows("select extname::text as name from pg_extension")}
    if db.row(_CRON_ELSEWHERE).so:
        there.add("pg_cron")
    found = list(_parts(parts, there))
    yield from found
    if not found:
        yield fine(", ".join(sorted(parts)) + " as asked for" if parts else "none was asked for")


def _parts(parts: dict[str, str], there: set[str]) -> Iterator[CheckResult]:
    for part, digest in sorted(parts.items()):
        flag = part.replace("_", "-")
        needed = NEEDED.get(part)
        if needed is not None and needed not in there:
            yield problem(
                f"{part} was installed, and the extension {needed} does not exist any more",
                f"create extension {needed}  -- or: headrace migrate --no-{flag}",
            )
        elif part not in PARTS:
            yield warning(
                f"the optional part {part} is unknown to this release",
                "pip install --upgrade headrace",
            )
        elif digest != digest_of(part):
            yield warning(f"the optional part {part} is of another release", "headrace migrate")
    if "pgmq" in parts and "pgmq" in there:
        yield problem(
            "the extension pgmq was created beside Headrace's functions of that name",
            "drop extension pgmq  -- or: headrace migrate --no-pgmq",
        )


def grants(db: Database) -> Iterator[CheckResult]:
    if not db.row(_THERE).schema:
        yield NEEDS_SCHEMA
        return
    public = [one.thing for one in db.rows(_PUBLIC)]
    if public:
        yield warning(f"PUBLIC (every role) may use {', '.join(public)}", AGAIN)
    creators = [one.role for one in db.rows(_CREATORS)]
    for creator in creators:
        role = creator if creator == "public" else db.identifier(creator)
        yield problem(
            f"{creator} may create objects in the schema headrace, and so have functions run "
            "with the rights of its owner",
            f"revoke create on schema headrace from {role}",
        )
    writers = db.rows(_WRITERS)
    for one in writers:
        role = one.role if one.role == "public" else db.identifier(one.role)
        yield warning(
            f"{one.role} may write to headrace.{one.name} without its functions, and break "
            "their guarantees",
            f"revoke all on headrace.{db.identifier(one.name)} from {role}",
        )
    roles = {one.rolname for one in db.rows("select rolname from pg_roles")}
    missing = [role for role in ROLES if role not in roles]
    if missing:
        create = "; ".join(f"create role {role} nologin" for role in missing)
        yield warning(
            f"the roles {', '.join(missing)} are missing: only the owner of the schema can use it",
            f"{create}  -- then: {AGAIN}",
        )
    if not public and not creators and not writers and not missing:
        yield fine("only Headrace's roles may use it, through its functions")


def partitions(db: Database) -> Iterator[CheckResult]:
    months = db.rows(_COVERED.format(bounds=_BOUNDS))
    for one in months:
        if not one.this:
            yield problem(
                f"headrace.{one.parent} has no partition for this month: the default "
                "partition takes all its rows",
                UPKEEP,
            )
        elif not one.next:
            yield warning(f"headrace.{one.parent} has no partition for next month", UPKEEP)
    if not months:
        yield NEEDS_SCHEMA
    elif all(one.this and one.next for one in months):
        ends: datetime = min(one.ends_at for one in months)
        yield fine(f"there are partitions until {ends:%B %Y}")


def default_partition(db: Database) -> Iterator[CheckResult]:
    caught = [
        parent
        for parent in ("events", "outcomes", "errors")
        if db.row(f"select exists (select from headrace.{parent}_default) as caught").caught
    ]
    for parent in caught:
        yield warning(
            f"headrace.{parent}_default holds rows of a month that had no partition when they came",
            UPKEEP,
        )
    if not caught:
        yield fine("empty")


def locks(db: Database) -> Iterator[CheckResult]:
    """A statement that cannot tell in which months its rows are locks all of them, with their
    indexes."""
    found = db.row(_LOCKS)
    if found.months > db.limits.locks * found.room:
        enough = 1 << int(found.relations).bit_length()
        yield warning(
            f"{found.months} months of events and their log are kept, and PostgreSQL has room "
            f"for {found.room} locks a session: when many sessions search the log at once, "
            "they fail with out of shared memory",
            f"alter system set max_locks_per_transaction = {enough}  -- and restart "
            "PostgreSQL; or keep fewer months: headrace.configure",
        )
    else:
        yield fine(f"room for {found.room} a session, and {found.months} months are kept")


def locks_in_the_way(db: Database) -> Iterator[CheckResult]:
    """Any role that may connect can take an advisory lock."""
    found = db.rows("select * from headrace.locks_in_the_way()")
    for one in found:
        yield warning(lock_in_the_way(one._asdict()), f"select pg_terminate_backend({one.pid})")
    if not found:
        yield fine("no session holds a lock that Headrace needs")


def upkeep(db: Database) -> Iterator[CheckResult]:
    found = db.row(_TICKING)
    if found.stopped:
        silent = f" for {span(found.silent)}" if found.silent else ""
        yield problem(
            f"nothing ticks{silent}: due events, and the events of lost workers, wait for a "
            "poll, and no upkeep runs",
            f"headrace serve  -- or a node, or every second: {TICK}",
        )
    elif found.overdue is not None and found.overdue > db.limits.upkeep:
        yield problem(
            f"the hourly upkeep is overdue by {span(found.overdue)}: partitions are neither "
            "made nor retired",
            UPKEEP,
        )
    if found.problem is not None:
        yield warning(f"a part of the upkeep fails: {found.problem}", UPKEEP)
    elif not found.stopped and not (found.overdue and found.overdue > db.limits.upkeep):
        yield fine("a node, server or job ticks")


def numbers(db: Database) -> Iterator[CheckResult]:
    try:
        highest = db.row("select headrace.ids_behind() as highest").highest
    except psycopg.DatabaseError as error:
        said, mend = error.diag.message_primary, error.diag.message_hint
        if error.sqlstate != SequenceBehind.sqlstate or said is None or mend is None:
            raise
        yield problem(said.removesuffix(f": `{mend}` corrects it"), mend)
        return
    if highest is None:
        one = db.row("select shard, stride from headrace.shard()")
        which = f", and this is shard {one.shard} of {one.stride}" if one.stride > 1 else ""
        yield fine(f"the sequence is ahead of its tables{which}")
    else:
        yield problem(
            "the sequence headrace.ids is behind its tables, which have numbers up to "
            f"{highest}: a part of a dump was restored, or this is a copy by logical "
            "replication. Publishing is refused",
            "headrace repair  -- on such a copy when it takes over",
        )
