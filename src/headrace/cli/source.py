"""The place of a command: a given PostgreSQL or the embedded one, a namespace, a queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from headrace.cli.terminal.command import Only
from headrace.cli.terminal.errors import WrongUse
from headrace.cli.terminal.options import AnyQueue, Data, Dsn, Namespace, Queue
from headrace.cli.terminal.text import clean, remark

if TYPE_CHECKING:  # --help and completion need none of them
    import psycopg

    from headrace.client import EventQueue, ShardedQueue


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

    @contextmanager
    def each_database(self) -> Iterator[Iterator[Source]]:
        """The database, or those of all shards, one after the other."""
        named = self.shards()
        if named is None:
            with self.database() as source:
                yield iter([source])
        else:
            yield (one for dsn in named for one in _alone(dsn))

    def prepared(self) -> AbstractContextManager[Source]:
        """The database, with the schema in it."""
        return prepared(self.dsn, self.data)

    def shards(self) -> list[str] | None:
        """The DSNs of several shards; None: it is one database."""
        return shards(self.dsn, self.data)

    def opened(self, queue: str | None = None) -> AbstractContextManager[EventQueue]:
        """The queue of the options, or another one of the namespace, over one connection; or over
        one to each shard."""
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
        """The queues by name, over the same connections."""
        from headrace.client import beside

        with self.opened("main") as main:
            found = main.queues() if self.queue is None else [main.queue(self.queue)]
            yield {one.name: beside(main, self.namespace, one.name) for one in found}


ALONE = (
    "several shards are named, and this command works on one database: name one of them, by --dsn"
)
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


def shards(dsn: Sequence[str] | None, data: Path | None) -> list[str] | None:
    """The DSNs of several shards, as `connect()` would take them; None: it is one database."""
    from headrace.driver.connect import several

    return several(dsn, data)


@contextmanager
def database(dsn: Sequence[str] | None, data: Path | None) -> Iterator[Source]:
    """The database that `connect()` would use; the embedded one is started."""
    from headrace.driver.connect import given_dsn, usable

    if shards(dsn, data):
        raise WrongUse(ALONE)
    given = dsn[0] if dsn else (None if data else given_dsn())
    if given is not None:
        address = usable(given)
        yield Source(address, _name(address), embedded=False)
        return
    from headrace.embedded import EmbeddedPostgres

    with EmbeddedPostgres(data, supervised=True) as postgres:
        name = f"PostgreSQL {postgres.version} in {postgres.data}"
        yield Source(postgres.dsn, name, embedded=True, data=postgres.data)


def _alone(dsn: str) -> Iterator[Source]:
    with database([dsn], None) as source:
        yield source


@contextmanager
def prepared(dsn: Sequence[str] | None, data: Path | None) -> Iterator[Source]:
    """The database with the schema in it: an embedded one is migrated, a given one must have it."""
    from headrace.driver.connect import open_source

    with database(dsn, data) as where:
        open_source(where.dsn, None, migrate=where.embedded, namespace="default")
        yield where


@contextmanager
def opened(
    dsn: Sequence[str] | None, data: Path | None, namespace: str = "default", queue: str = "main"
) -> Iterator[EventQueue]:
    """A queue of the database, over one connection; or of all shards. A missing namespace is not
    created: a mistyped name must not become one."""
    several = shards(dsn, data)
    if several:
        with over_shards(several, namespace, queue) as sharded:
            yield sharded
        return
    with prepared(dsn, data) as where, connected(where) as connection:
        yield queue_over(connection, namespace, queue)


@contextmanager
def over_shards(dsns: list[str], namespace: str, queue: str) -> Iterator[ShardedQueue]:
    """A queue of several shards, over one connection to each. At the end it is said which of them
    did not answer."""
    from headrace.client import ShardedQueue
    from headrace.driver.connect import given_timeout
    from headrace.driver.servers import Terms

    bound = given_timeout()
    terms = Terms(namespace, me(), prepare=False, pool_size=1, bound=bound, creates=False)
    with ShardedQueue(dsns, terms, queue) as client:
        yield client
        missing = client.missing
    for one in missing:
        remark(f"No answer: {clean(one)}", style="yellow")


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
