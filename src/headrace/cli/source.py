"""The place of a command: a given PostgreSQL or the embedded one, a namespace, a queue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from headrace.cli.terminal.command import Only
from headrace.cli.terminal.options import AnyQueue, Data, Dsn, Namespace, Queue
from headrace.cli.terminal.text import clean

if TYPE_CHECKING:  # --help and completion need none of them
    import psycopg

    from headrace.client import EventQueue


@dataclass(frozen=True)
class Where:
    """The options that say where a command works."""

    namespace: Namespace = "default"
    queue: Queue = "main"
    dsn: Dsn = None
    data: Data = None

    def database(self) -> AbstractContextManager[Source]:
        """The database, whether or not it has the schema."""
        return database(self.dsn, self.data)

    def prepared(self) -> AbstractContextManager[Source]:
        """The database, with the schema in it."""
        return prepared(self.dsn, self.data)

    def opened(self, queue: str | None = None) -> AbstractContextManager[EventQueue]:
        """The queue of the options, or another one of the namespace, over one connection."""
        return opened(self.dsn, self.data, self.namespace, self.queue if queue is None else queue)

    def path(self, queue: str | None = None) -> str:
        """NAMESPACE/QUEUE, for messages."""
        return f"{clean(self.namespace)}/{clean(self.queue if queue is None else queue)}"


@dataclass(frozen=True)
class AllQueues(Where):
    """As `Where`, but without --queue a command is about all queues of the namespace."""

    queue: AnyQueue = None  # type: ignore[assignment]

    @contextmanager
    def each(self) -> Iterator[dict[str, EventQueue]]:
        """The queues by name, over one connection."""
        with prepared(self.dsn, self.data) as where, connected(where) as connection:
            main = queue_over(connection, self.namespace, "main")
            found = main.queues() if self.queue is None else [main.queue(self.queue)]
            yield {one.name: queue_over(connection, self.namespace, one.name) for one in found}


InDatabase = Annotated[Where, Only("dsn", "data")]
InNamespace = Annotated[Where, Only("namespace", "dsn", "data")]


@dataclass(frozen=True)
class Source:
    """An open database: its address, and a name for messages, which holds no password."""

    dsn: str
    name: str
    embedded: bool
    data: Path | None = None
    """The data folder of an embedded one."""


@contextmanager
def database(dsn: str | None, data: Path | None) -> Iterator[Source]:
    """The database that `connect()` would use; the embedded one is started."""
    from headrace.driver.connect import given_dsn, usable

    given = dsn or (None if data else given_dsn())
    if given is not None:
        address = usable(given)
        yield Source(address, _name(address), embedded=False)
        return
    from headrace.embedded import EmbeddedPostgres

    with EmbeddedPostgres(data, supervised=True) as postgres:
        name = f"PostgreSQL {postgres.version} in {postgres.data}"
        yield Source(postgres.dsn, name, embedded=True, data=postgres.data)


@contextmanager
def prepared(dsn: str | None, data: Path | None) -> Iterator[Source]:
    """The database with the schema in it: an embedded one is migrated, a given one must have it."""
    from headrace.driver.connect import open_source

    with database(dsn, data) as where:
        open_source(where.dsn, None, migrate=where.embedded, namespace="default")
        yield where


@contextmanager
def opened(
    dsn: str | None, data: Path | None, namespace: str = "default", queue: str = "main"
) -> Iterator[EventQueue]:
    """A queue of the database, over one connection. A missing namespace is not created: a mistyped
    name must not become one."""
    with prepared(dsn, data) as where, connected(where) as connection:
        yield queue_over(connection, namespace, queue)


def connected(where: Source) -> psycopg.Connection[Any]:
    """A connection for a command. It prepares no statements, because of transaction poolers."""
    from headrace.driver.connect import HEAR_WARNINGS, READ_COMMITTED, open_session

    connection = open_session(where.dsn)
    level = connection.execute(
        "select pg_catalog.current_setting('transaction_isolation')"
    ).fetchone()
    if level != ("read committed",):
        connection.execute(READ_COMMITTED)
    connection.command(HEAR_WARNINGS)
    return connection


def queue_over(connection: psycopg.Connection[Any], namespace: str, queue: str) -> EventQueue:
    """A queue over a connection, as long as that is open."""
    from headrace.client import EventQueue

    return EventQueue(connection, namespace=namespace, queue=queue, worker=me(), prepare=False)


def me() -> str:
    """The user of this command, for the log of administration."""
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = "somebody"
    return f"{user}@{socket.gethostname()}"


def _name(address: str) -> str:
    from psycopg.conninfo import conninfo_to_dict

    parts = conninfo_to_dict(address)
    host = parts.get("host") or parts.get("hostaddr") or "localhost"
    return f"PostgreSQL at {host}, database {parts.get('dbname') or parts.get('user') or 'default'}"
