"""Databases that tests take turns with. A database that a test gives back is as the template is, to the row, or it is dropped.

Nothing here knows the schema: the template is read once, and every copy has its object ids.

- A test that changes the schema, a role's rights, a setting of the database or the planner's statistics spoils its database.
  PostgreSQL's counters of rows written tell, and the rows of two catalogues: none may be younger than the last cleaning.
  Tables in the schema `public` are dropped instead; then all catalogues have to be as they were.
- A test that leaves a session, a thread, a process or a prepared transaction behind spoils it too. A client that outlives
  its test would reconnect to the next test's database.
- Tables that were written to are truncated, not deleted from: no dead row, no bloated index and no estimate of the planner is
  the next test's. Rows that the template has are copied back, and sequences are set back.
- Sessions stay, as a pooler would keep them: to find out about the schema takes a new one longer than all else that a short
  test does.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import pq
from psycopg.pq import PGconn

GRACE = 0.1
"""Seconds for what has been told to end: a session takes a millisecond, a thread about as much."""
PARKED = 3
"""Sessions that a test leaves to the next, at most."""

_OURS = "n.nspname not in ('pg_catalog', 'information_schema', 'pg_toast')"

_CATALOGUES = """
select c.oid, c.oid::regclass::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'pg_catalog' and c.relkind = 'r' and not c.relisshared
"""
_TABLES = f"""
select c.oid, c.oid::regclass::text,
    (select string_agg(quote_ident(a.attname), ', ' order by a.attnum) from pg_attribute a
     where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = '')
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where {_OURS} and c.relkind = 'r' order by c.oid
"""
_SEQUENCES = f"""
select c.oid::regclass::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
where {_OURS} and c.relkind = 'S' order by c.oid
"""
# Truncated, an index has other estimates than one that was created empty.
_ESTIMATES = f"""
select c.oid, c.relpages, c.reltuples from pg_class c join pg_namespace n on n.oid = c.relnamespace
where {_OURS} and c.relkind in ('r', 'i')
"""
_ESTIMATE = """
update pg_class c set relpages = t.relpages, reltuples = t.reltuples
from unnest(%s::oid[], %s::int[], %s::real[]) t(oid, relpages, reltuples)
where c.oid = t.oid and (c.relpages, c.reltuples) <> (t.relpages, t.reltuples)
"""
_OWN_TABLES = """
select c.oid::regclass::text from pg_class c where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p')
"""
_NEXT = "select pg_snapshot_xmax(pg_current_snapshot())::text"
# A row that is younger was written by the test.
_EXACT = "select '{0}', count(*), count(*) filter (where age(xmin) <= age(%(born)s::xid)) from {0}"
_REFERENCES = "select confrelid, conrelid from pg_constraint where contype = 'f'"
# The counters were reset when the database was clean. A session adds to them before it has ended; the asking one does when it
# is told to. VACUUM and ANALYZE write their estimates in place, uncounted.
_FLUSH = "select pg_stat_force_next_flush()"
_SCHEMA = f"""
select
    (select coalesce(sum(pg_stat_get_tuples_inserted(c) + pg_stat_get_tuples_updated(c) + pg_stat_get_tuples_deleted(c)), 0)::bigint
     from unnest(%(catalogues)s::oid[]) c),
    (select array[count(*), count(*) filter (where age(p.xmin) <= age(%(born)s::xid))] from pg_proc p),
    (select array[count(*), count(*) filter (where age(c.xmin) <= age(%(born)s::xid))] from pg_class c),
    (select array[sum(c.relpages)::bigint, sum(c.reltuples)::bigint] from pg_class c
     where c.relnamespace in (select n.oid from pg_namespace n where {_OURS})),
    d.xmin::text,
    (select count(*) from pg_db_role_setting where setdatabase = d.oid),
    (select count(*) from pg_prepared_xacts where database = d.datname),
    (select count(*) from pg_replication_slots where database = d.datname)
from pg_database d where d.datname = current_database()
"""
# A new session would begin with settings of the database, or of its role there, that are not this one's.
_AS_A_NEW_ONE = """
select not exists (select from pg_db_role_setting where setdatabase in (0, (select oid from pg_database where datname = current_database())))
"""
_OTHERS = """
select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
"""


@dataclass(frozen=True)
class Template:
    """What is in the template, and the statements that ask whether a copy of it is the same."""

    name: str
    """Of its database."""
    catalogues: list[int]
    """PostgreSQL's own tables."""
    exact: str
    """Asks how many rows they have, none of them new."""
    tables: dict[int, tuple[str, str]]
    """The names and columns of the others."""
    rows: dict[int, bytes]
    """The contents of those that are not empty."""
    follow: dict[int, set[int]]
    """The tables that have to be truncated together with one."""
    estimates: list[list[Any]]
    """What the planner believes of the tables and indexes: their object ids, pages and rows."""
    written: str
    sequences: str
    values: list[Any]

    @classmethod
    def read(cls, connection: psycopg.Connection[Any]) -> Template:
        ask = connection.execute
        tables = {oid: (name, columns) for oid, name, columns in ask(_TABLES).fetchall()}
        rows = {}
        for oid, (name, columns) in tables.items():
            with connection.cursor().copy(f"copy {name} ({columns}) to stdout") as copy:
                content = b"".join(bytes(part) for part in copy)
            if content:
                rows[oid] = content
        written = [
            f"select {oid}::oid, array_agg((ctid, xmin))::text from {tables[oid][0]}"
            for oid in rows
        ]
        empty = f"'{{{','.join(str(oid) for oid in tables.keys() - rows.keys())}}}'::oid[]"
        written.append(f"select c, '' from unnest({empty}) c where pg_relation_size(c) > 0")
        sequences = " union all ".join(
            f"select '{name}', last_value, is_called from {name}"
            for (name,) in ask(_SEQUENCES).fetchall()
        )
        catalogues: dict[int, str] = dict(ask(_CATALOGUES).fetchall())
        exact = " union all ".join(_EXACT.format(name) for name in catalogues.values())
        return cls(
            name=connection.info.dbname,
            catalogues=list(catalogues),
            exact=exact,
            tables=tables,
            rows=rows,
            follow=_followers(ask(_REFERENCES).fetchall()),
            estimates=[list(column) for column in zip(*ask(_ESTIMATES).fetchall(), strict=True)],
            written=" union all ".join(written),
            sequences=sequences,
            values=ask(sequences).fetchall(),
        )


def _followers(references: list[tuple[int, int]]) -> dict[int, set[int]]:
    """Everything that refers to a table, directly or not."""
    found: dict[int, set[int]] = {}
    for referred, _ in references:
        reached = {referred}
        while more := {by for to, by in references if to in reached} - reached:
            reached |= more
        found[referred] = reached
    return found


@dataclass
class Copy:
    """A copy of the template that tests take turns with, and the sessions that they leave to each other."""

    template: Template
    name: str
    dsn: str
    _parked: list[PGconn] = field(default_factory=list)
    _born: str = ""
    _schema: Any = None
    _counted: list[Any] = field(default_factory=list)
    _rows: dict[int, str] = field(default_factory=dict)
    _threads: frozenset[int] = frozenset()
    _children: frozenset[str] = frozenset()

    @classmethod
    def open(cls, template: Template, name: str, dsn: str) -> Copy:
        """Of a database that was made a moment ago."""
        copy = cls(template, name, dsn)
        with copy._asking() as session:
            copy._note(session)
            # Of the copy itself: autovacuum may have analyzed the template since it was read.
            copy._counted = session.execute(template.exact, {"born": copy._born}).fetchall()
        return copy

    def lend(self) -> None:
        """The next test begins."""
        self._threads, self._children = _threads(), _children()

    def session(self) -> psycopg.Connection[Any] | None:
        """A session of the last test, as good as new, if there is one."""
        while self._parked:
            session = _wrapped(self._parked.pop())
            try:
                if session.execute(_AS_A_NEW_ONE).fetchone() == (True,):
                    return session
            except psycopg.Error:  # somebody has ended it
                pass
            session.close()
        return None

    def park(self, session: psycopg.Connection[Any]) -> None:
        """Keep a session for the next test. To this one it is closed, whoever still has it."""
        pgconn = session.pgconn
        usable = pgconn.transaction_status == pq.TransactionStatus.IDLE
        if not usable or pgconn.pipeline_status or len(self._parked) == PARKED:
            session.close()
            return
        session.pgconn = _CLOSED
        try:
            pgconn.exec_(_FLUSH.encode())
            is_clean = pgconn.exec_(b"discard all").status == pq.ExecStatus.COMMAND_OK
        except psycopg.Error:  # somebody has ended it
            is_clean = False
        if is_clean:
            self._parked.append(pgconn)
        else:
            pgconn.finish()

    def clean(self) -> bool:
        """Make it as the template is. Where that cannot be done, or not for certain, the copy is of no use, and it is False."""
        try:
            with self._asking() as session:
                return self._clean(session)
        except psycopg.Error:
            return False

    def close(self) -> None:
        for pgconn in self._parked:
            pgconn.finish()
        self._parked.clear()

    @contextmanager
    def _asking(self) -> Iterator[psycopg.Connection[Any]]:
        session = self.session() or psycopg.connect(self.dsn, autocommit=True)
        session.prepare_threshold = None
        try:
            yield session
        finally:
            self.park(session)

    def _clean(self, session: psycopg.Connection[Any]) -> bool:
        if not self._alone(session):
            return False
        if self._schema_now(session) != self._schema and not self._without_own_tables(session):
            return False
        written = self._written(session)
        self._restore(
            session, {oid for oid, rows in written.items() if self._rows.get(oid) != rows}
        )
        self._note(session)
        return True

    def _alone(self, session: psycopg.Connection[Any]) -> bool:
        """Whether the last test is gone, with its threads and processes: they would reconnect."""
        deadline = time.monotonic() + GRACE
        while (
            session.execute(_OTHERS).fetchone() != (len(self._parked),)
            or _threads() - self._threads
            or _children() - self._children
        ):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)
        return True

    def _schema_now(self, session: psycopg.Connection[Any]) -> Any:
        session.execute(_FLUSH)
        parameters = {"catalogues": self.template.catalogues, "born": self._born}
        return session.execute(_SCHEMA, parameters).fetchone()

    def _without_own_tables(self, session: psycopg.Connection[Any]) -> bool:
        """Drop the tables that the test has made beside ours, and see whether that was all."""
        for (table,) in session.execute(_OWN_TABLES).fetchall():
            session.execute(f"drop table if exists {table} cascade")
        session.execute(_FLUSH)
        session.execute("select pg_stat_reset()")
        return (
            self._schema_now(session) == self._schema
            and session.execute(self.template.exact, {"born": self._born}).fetchall()
            == self._counted
        )

    def _written(self, session: psycopg.Connection[Any]) -> dict[int, str]:
        """The tables that are not empty though the template's are, and where the rows are that it has, too."""
        return dict(session.execute(self.template.written).fetchall())

    def _restore(self, session: psycopg.Connection[Any], changed: set[int]) -> None:
        template = self.template
        for oid in tuple(changed):
            changed |= template.follow.get(oid, set())
        with session.transaction():
            # No trigger fires, and no reference is looked at: in the end, all is as it was.
            session.execute("set local session_replication_role = replica")
            if changed:
                session.execute("truncate " + ", ".join(template.tables[oid][0] for oid in changed))
                session.execute(_ESTIMATE, template.estimates)
            for oid in changed & template.rows.keys():
                name, columns = template.tables[oid]
                with session.cursor().copy(f"copy {name} ({columns}) from stdin") as copy:
                    copy.write(template.rows[oid])
            now = session.execute(template.sequences).fetchall()
            for value in set(template.values) - set(now):
                session.execute("select setval(%s, %s, %s)", value)

    def _note(self, session: psycopg.Connection[Any]) -> None:
        """What the next cleaning compares with."""
        session.execute(_FLUSH)
        session.execute("select pg_stat_reset()")
        [(self._born,)] = session.execute(_NEXT).fetchall()
        self._schema = self._schema_now(session)
        self._rows = self._written(session)


def _wrapped(pgconn: PGconn) -> psycopg.Connection[Any]:
    """A session in an object of its own: nothing that a test has set in its object is left."""
    session = psycopg.Connection[Any](pgconn)
    session.autocommit = True
    return session


def _closed() -> PGconn:
    pgconn = PGconn.connect(b"host=/nowhere")
    pgconn.finish()
    return pgconn


_CLOSED = _closed()


def _threads() -> frozenset[int]:
    return frozenset(thread.ident or 0 for thread in threading.enumerate())


def _children() -> frozenset[str]:
    """The processes that this one has started and that still run, where the system tells."""
    found: set[str] = set()
    for task in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        try:
            found.update(task.read_text().split())
        except OSError:  # the thread has ended
            continue
    return frozenset(found)
