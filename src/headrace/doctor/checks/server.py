"""Checks of PostgreSQL itself: Headrace's promises depend on its settings."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from headrace.doctor.database import Database
from headrace.doctor.findings import CheckResult, fine, problem, warning
from headrace.embedded.folder import MARK
from headrace.embedded.log import BYTES

OLDEST, NEWEST = 15, 18  # of PostgreSQL, that this release is tested with

_SETTING = "select setting, source from pg_settings where name = %(name)s"
_WHERE = "select current_user as role, current_database() as database"


def version(db: Database) -> Iterator[CheckResult]:
    yield judged_version(db.connection.info.server_version // 10000)


def judged_version(major: int) -> CheckResult:
    if major < OLDEST:
        return problem(
            f"PostgreSQL {major} is too old: Headrace needs {OLDEST} or newer",
            "pg_upgrade to PostgreSQL 18",
        )
    if major > NEWEST:
        return warning(
            f"PostgreSQL {major} is newer than any this release was tested with ({NEWEST})",
            "pip install --upgrade headrace",
        )
    return fine(f"PostgreSQL {major}")


def encoding(db: Database) -> Iterator[CheckResult]:
    is_called = db.row("select current_setting('server_encoding') as name").name
    if is_called == "UTF8":
        yield fine(is_called)
    else:
        yield problem(
            f"the database's encoding is {is_called}, and events may hold any Unicode text",
            "createdb --encoding UTF8 --template template0 headrace",
        )


def writable(db: Database) -> Iterator[CheckResult]:
    found = db.row(
        "select pg_is_in_recovery() as standby, current_setting('default_transaction_read_only') = 'on' as read_only"
    )
    if found.standby:
        yield problem(
            "this is a standby: nothing can be published or claimed here",
            "name the primary: host=one,two target_session_attrs=read-write in the DSN",
        )
    elif found.read_only:
        yield problem(
            "transactions are read-only by default",
            _set(db, "default_transaction_read_only", "off"),
        )
    else:
        yield fine("a primary, open for writing")


def fsync(db: Database) -> Iterator[CheckResult]:
    yield _on(db, "fsync", "a crash of the machine may lose everything, not only new data")


def full_page_writes(db: Database) -> Iterator[CheckResult]:
    yield _on(db, "full_page_writes", "a crash of the machine may leave torn pages")


def synchronous_commit(db: Database) -> Iterator[CheckResult]:
    value = db.row(_SETTING, name="synchronous_commit").setting
    if value == "off":
        yield problem(
            "synchronous_commit is off: a crash of PostgreSQL may lose events whose publish "
            "has returned",
            _set(db, "synchronous_commit", "on"),
        )
    else:
        yield fine(value)


def isolation(db: Database) -> Iterator[CheckResult]:
    level = db.row(_SETTING, name="default_transaction_isolation").setting
    if level == "read committed":
        yield fine(level)
    else:
        yield warning(
            f"transactions are {level} by default: poll, tick and pgmq.read refuse that "
            "unless a client asks for another level",
            _set(db, "default_transaction_isolation", "'read committed'"),
        )


def notification_queue(db: Database) -> Iterator[CheckResult]:
    used = float(db.row("select pg_notification_queue_usage() as used").used)
    if used >= db.limits.notifications:
        yield problem(
            f"{used:.0%} of PostgreSQL's notification queue is in use: when it is full, every "
            "NOTIFY fails; Headrace stops notifying at 90%, and workers poll. A session that "
            "listens has been in one transaction for too long",
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where state = 'idle in transaction' and query ilike 'listen%'",
        )
    else:
        yield fine(f"{used:.0%} in use")


def server_log(db: Database) -> Iterator[CheckResult]:
    """Of an embedded PostgreSQL; the log of another is its operator's."""
    log = _log(db)
    if log is None:
        yield fine("not an embedded PostgreSQL")
        return
    size = log.stat().st_size
    if size > db.limits.log:
        yield warning(
            f"{log} has {size / 1e6:,.0f} MB: processes of Headrace that use this PostgreSQL "
            f"would keep it at {BYTES / 1e6:.0f} MB, and none runs",
            f"truncate --size 0 {shlex.quote(str(log))}",
        )
    else:
        yield fine(f"{size / 1e6:,.1f} MB")


def _log(db: Database) -> Path | None:
    if not db.connection.info.host.startswith("/"):
        return None
    for found in db.rows("select setting from pg_settings where name = 'data_directory'"):
        data = Path(found.setting).parent
        if (data / MARK).exists() and (data / "server.log").exists():
            return data / "server.log"
    return None


def _on(db: Database, name: str, danger: str) -> CheckResult:
    if db.row(_SETTING, name=name).setting == "on":
        return fine("on")
    return problem(f"{name} is off: {danger}", _set(db, name, "on"))


def _set(db: Database, name: str, value: str) -> str:
    """The command that changes a setting where it is set."""
    source = db.row(_SETTING, name=name).source
    where = db.row(_WHERE)
    role, database = db.identifier(where.role), db.identifier(where.database)
    match source:
        case "database":
            return f"alter database {database} set {name} = {value}"
        case "user":
            return f"alter role {role} set {name} = {value}"
        case "database user":
            return f"alter role {role} in database {database} set {name} = {value}"
        case "client" | "session":
            return f"remove {name} from the options of the DSN, or from PGOPTIONS"
        case "command line":
            return f"remove {name} from the command that starts PostgreSQL, and restart it"
        case _:
            return f"alter system set {name} = {value}; select pg_reload_conf()"
