"""PostgreSQL for tests: one server a run, a clean database a test, and a clock that tests move."""

import itertools
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import chain
from typing import Any
from zlib import crc32

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

import headrace
from headrace.embedded import Binaries, EmbeddedPostgres, find_binaries
from headrace.errors import EmbeddedError
from headrace.install.migrate import migrate
from headrace.testing.database import HOUR, LET_RUN, MOVABLE_CLOCK, MOVE
from tests.folders import short_folder
from tests.places import PLACEMENT
from tests.recycling import Copy, Template

# A row stops it, so that the schema of a test that does so is the template's.
STOPPABLE_CLOCK = """
create table headrace_test.stopped (at timestamptz not null);
create or replace function headrace._now() returns timestamptz
language plpgsql stable parallel safe security definer
set search_path = pg_catalog, pg_temp
as $$ begin
    return coalesce((select s.at from headrace_test.stopped s), clock_timestamp())
         + (select make_interval(secs => extract(epoch from c.shift)::float8) from headrace_test.clock c);
end $$;
"""
# The databases of all tests are shard 3 of so many: every test holds there too.
STRIDE = int(os.environ.get("HEADRACE_TEST_STRIDE", "1"))
SHARD = min(3, STRIDE - 1)
FIRST = SHARD or STRIDE
"""The first id that a test's database draws; the next is STRIDE further."""
# For tests that hold calls up on purpose: with their half a second the calls would give up.
PATIENT = "".join(
    f"alter function headrace.{function} set lock_timeout = '60s';"
    for function in ("_take_one", "erase", "_revive", "rerun")
)
PATIENCE = 60.0  # seconds until what must happen at once is taken not to happen


class Server:
    """A PostgreSQL that lasts for the whole run, and the templates of its tests' databases."""

    TEMPLATE, PATIENT = "headrace_template", "headrace_patient"

    def __init__(self, postgres: EmbeddedPostgres, binaries: Binaries) -> None:
        self.dsn = postgres.dsn
        self.binaries = binaries.folder
        self.version = binaries.major
        self.data = postgres.data
        self.log = postgres.log
        self._numbers = itertools.count(1)
        self._admin = psycopg.connect(self.dsn, autocommit=True)
        self._templates: dict[str, Template] = {}
        self._clean: dict[str, list[Copy]] = defaultdict(list)

    def dsn_of(self, database: str) -> str:
        return make_conninfo(self.dsn, dbname=database)

    def create_database(self, *, template: str = "template0") -> str:
        """The name of a new database, empty unless a template is named."""
        name = f"test_{next(self._numbers)}"
        self._admin.execute(
            # Copying the files takes a tenth of the time that logging every page does.
            sql.SQL("create database {} template {} strategy file_copy").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )
        return name

    def drop_database(self, name: str) -> None:
        self._end_sessions(name)
        self._admin.execute(
            sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name))
        )

    def _end_sessions(self, name: str) -> None:
        """PostgreSQL looks every 100 ms whether the sessions of a dropped database have ended: a quarter of a
        run's time, though a session whose client has gone ends within a millisecond."""
        end = "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = %s"
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:
            row = self._admin.execute(end, [name]).fetchone()
            if row == (0,):
                return
            time.sleep(0.001)

    def prepare_template(self) -> None:
        def prepare(connection: psycopg.Connection[Any]) -> None:
            migrate(connection, stride=STRIDE, shard=SHARD)
            connection.execute(MOVABLE_CLOCK)
            connection.execute(STOPPABLE_CLOCK)

        self.make_template(self.TEMPLATE, prepare)

    def make_template(
        self,
        name: str,
        prepare: Callable[[psycopg.Connection[Any]], object],
        of: str = "template0",
    ) -> str:
        """A database that `lend` copies, made when the first test asks for it; its name."""
        if name not in self._templates:
            self._admin.execute(
                sql.SQL("create database {} template {}").format(
                    sql.Identifier(name), sql.Identifier(of)
                )
            )
            with psycopg.connect(self.dsn_of(name), autocommit=True) as connection:
                prepare(connection)
                self._templates[name] = Template.read(connection)
        return name

    def lend(self, template: str = TEMPLATE) -> "Database":
        """A database as a template is, which another test may have had before."""
        clean = self._clean[template]
        if not clean:
            name = self.create_database(template=template)
            clean.append(Copy.open(self._templates[template], name, self.dsn_of(name)))
        copy = clean.pop()
        copy.lend()
        return Database(self, copy.name, copy)

    def lend_patient(self) -> "Database":
        """One in which calls wait a minute for a lock."""
        return self.lend(
            self.make_template(
                self.PATIENT, lambda connection: connection.execute(PATIENT), self.TEMPLATE
            )
        )

    def lend_shard(self, stride: int, number: int, *prepare: str) -> "Database":
        """One that is this shard of so many, prepared by these statements."""

        def become(connection: psycopg.Connection[Any]) -> None:
            migrate(connection, stride=stride, shard=number)
            for statement in prepare:
                connection.execute(statement)

        name = f"headrace_{number}_of_{stride}_{crc32(repr(prepare).encode())}"
        return self.lend(self.make_template(name, become))

    def start_anew(self) -> None:
        """Lend no database that was lent before: autovacuum may have been at it meanwhile."""
        for clean in self._clean.values():
            while clean:
                copy = clean.pop()
                copy.close()
                self.drop_database(copy.name)

    def take_back(self, copy: Copy) -> None:
        if copy.clean():
            self._clean[copy.template.name].append(copy)
        else:
            copy.close()
            self.drop_database(copy.name)

    def close(self) -> None:
        for copy in chain.from_iterable(self._clean.values()):
            copy.close()
        self._admin.close()


class Database:
    """A test's own database. What it opens it closes, and then the database is dropped, or cleaned for another test."""

    def __init__(self, server: Server, name: str, copy: Copy | None = None) -> None:
        self.server = server
        self.copy = copy
        self._borrowed: list[psycopg.Connection[Any]] = []
        self.name = name
        self.dsn = server.dsn_of(name)
        self._own: psycopg.Connection[Any] | None = None
        self._opened: list[Any] = []

    @property
    def first_dsn(self) -> str:
        """Of one server, where there are several."""
        return self.dsn

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        """A connection in autocommit; `user=` makes it another role's."""
        kept = {"autocommit": options.pop("autocommit", True)}
        row_factory = options.pop("row_factory", None)
        if row_factory is not None:
            kept["row_factory"] = row_factory
        if self.copy is not None and not options and (parked := self.copy.session()):
            parked.autocommit = kept["autocommit"]
            if row_factory is not None:
                parked.row_factory = row_factory
            self._borrowed.append(parked)
            return parked
        connection = psycopg.connect(make_conninfo(self.dsn, **options), **kept)
        (self._borrowed if self.copy and not options else self._opened).append(connection)
        return connection

    def queue(self, **options: Any) -> "headrace.EventQueue":
        queue = headrace.connect(self.dsn, **options)
        self._opened.append(queue)
        return queue

    def async_queue(self, **options: Any) -> Any:
        """What connect_async gives: `async with db.async_queue() as queue`, or await it and close it."""
        return headrace.connect_async(self.dsn, **options)

    def sql(self, query: str, params: Any = None) -> list[tuple[Any, ...]]:
        """The rows of a statement that is committed on its own."""
        if self._own is None:
            self._own = self.connect()
        cursor = self._own.execute(query, params)
        return cursor.fetchall() if cursor.description is not None else []

    def advance(self, **duration: float) -> None:
        """Let time pass for the engine: advance(seconds=61), advance(minutes=5)."""
        self.step(**duration)
        if timedelta(**duration) >= HOUR:
            self.sql(LET_RUN)

    def step(self, **duration: float) -> None:
        """Set the engine's clock to another time, ahead or back: nothing passes."""
        self.sql(MOVE, [timedelta(**duration)])

    def placement(self, queue: str = "main") -> dict[int, list[str]]:
        """Where each event's delivery in a queue is; whatever happens, it is in exactly one place."""
        return dict(self.sql(PLACEMENT, {"queue": queue}))

    def wait_for(self, condition: Callable[[], bool], patience: float = PATIENCE) -> None:
        """Wait until a condition holds that somebody else is about to bring about."""
        deadline = time.monotonic() + patience
        while not condition():
            assert time.monotonic() < deadline, "it did not happen"
            time.sleep(0.005)

    def wait_until_blocked(self, backend: "psycopg.Connection[Any] | int") -> None:
        """Wait until a backend waits for a lock that another holds."""
        pid = backend if isinstance(backend, int) else backend.info.backend_pid
        blocked = "select cardinality(pg_blocking_pids(%s)) > 0"
        self.wait_for(lambda: self.sql(blocked, [pid]) == [(True,)])

    def close(self) -> None:
        for opened in reversed(self._opened):
            opened.close()
        for session in self._borrowed:
            if self.copy is not None:
                self.copy.park(session)

    def give_back(self) -> None:
        """Close it, and leave it to another test if it can be."""
        self.close()
        if self.copy is None:
            self.server.drop_database(self.name)
        else:
            self.server.take_back(self.copy)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    try:
        binaries = find_binaries()
    except EmbeddedError as error:
        pytest.skip(str(error))
    # Every test makes a database and throws it away, so nothing waits for the disk here. That commits
    # reach it is shown in tests/faults, on servers of their own.
    settings = {"fsync": "off", "full_page_writes": "off", "max_prepared_transactions": "2"}
    with (
        short_folder() as folder,
        EmbeddedPostgres(folder / "data", settings=settings) as postgres,
    ):
        server = Server(postgres, binaries)
        server.prepare_template()
        yield server
        server.close()


@pytest.fixture
def db(one_db: Database) -> Database:
    return one_db


@pytest.fixture
def one_db(server: Server, request: pytest.FixtureRequest) -> Iterator[Database]:
    """A database as the template is, clean but perhaps not new. For a test that is marked with `new_database` it is
    new, and no session is there but the test's; with `patient`, calls wait for locks as long as the test likes."""
    if request.node.get_closest_marker("new_database"):
        database = Database(server, server.create_database(template=Server.TEMPLATE))
    elif request.node.get_closest_marker("patient"):
        database = server.lend_patient()
    else:
        database = server.lend()
    yield database
    database.give_back()


@pytest.fixture
def empty_db(server: Server) -> Iterator[Database]:
    """A database without Headrace in it."""
    database = Database(server, server.create_database())
    yield database
    database.give_back()


@pytest.fixture
def shard(server: Server) -> Iterator[Callable[[int, int], Database]]:
    """Makes databases that are this shard of so many, with the clock that the release comes with."""
    made: list[Database] = []

    def make(stride: int, number: int = 0) -> Database:
        made.append(server.lend_shard(stride, number))
        return made[-1]

    yield make
    for database in made:
        database.give_back()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
