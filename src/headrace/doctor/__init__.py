"""Checks what a careful operator would check: each finding comes with the command that fixes it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import psycopg
from psycopg import errors

from headrace.doctor.checks import connection as the_connection
from headrace.doctor.checks import (
    queues,
    replication,
    rights,
    schema,
    server,
    shards,
    times,
    vacuum,
)
from headrace.doctor.database import Database, Distrusted
from headrace.doctor.findings import (
    NEEDS_SCHEMA,
    Check,
    CheckResult,
    Diagnosis,
    Limits,
    State,
    unknown,
)

__all__ = ["CHECKS", "Check", "Diagnosis", "Limits", "State", "compare", "examine"]

_LOOKS: dict[str, tuple[Callable[[Database], Iterator[CheckResult]], ...]] = {
    "PostgreSQL": (
        server.version,
        server.encoding,
        server.writable,
        server.fsync,
        server.full_page_writes,
        server.synchronous_commit,
        server.isolation,
        server.notification_queue,
        server.server_log,
    ),
    "Vacuum": (
        vacuum.oldest_snapshot,
        vacuum.prepared_transactions,
        vacuum.autovacuum,
        vacuum.dead_rows,
        vacuum.bloat,
    ),
    "Replication": (
        replication.synchronous,
        replication.waiting_commits,
        replication.standbys,
        replication.replication_slots,
        replication.hosts,
    ),
    "Schema": (
        schema.migration,
        schema.extensions,
        schema.grants,
        rights.owners,
        rights.search_paths,
        schema.partitions,
        schema.default_partition,
        schema.locks,
        schema.locks_in_the_way,
        schema.upkeep,
        schema.numbers,
        times.stored_times,
    ),
    "Queues": (queues.oldest_ready, queues.orphans, queues.expired_leases),
    "Connection": (the_connection.pooler, the_connection.clock),
}

CHECKS = tuple(
    Check(look.__name__, about, look) for about, looks in _LOOKS.items() for look in looks
)
"""Everything that is looked at, in the order in which it is."""

_MISSING = (errors.UndefinedTable, errors.UndefinedFunction, errors.InvalidSchemaName)
_TOO_LONG = (errors.QueryCanceled, errors.LockNotAvailable)


def examine(
    connection: psycopg.Connection[Any],
    dsn: str,
    *,
    checks: Iterable[Check] = CHECKS,
    limits: Limits | None = None,
    clock: Callable[[], float] = time.time,
) -> Iterator[Diagnosis]:
    """Make the checks, with what the connected role may see; the connection is in autocommit.

    dsn: of the same database, for the checks that need a second connection.
    """
    db = Database(connection, dsn, limits or Limits(), clock)
    for check in checks:
        for verdict in _looked(db, check.look, db):
            yield Diagnosis(check.name, check.about, verdict.state, verdict.says, verdict.mend)


_TOGETHER = (
    shards.versions,
    shards.namespaces,
    shards.queue_settings,
    shards.tokens,
    shards.homes_of_keys,
)


def compare(connections: Mapping[str, psycopg.Connection[Any]]) -> Iterator[Diagnosis]:
    """Check what must be the same on several shards, which have these names in messages."""
    them = {name: Database(one, "", Limits(), time.time) for name, one in connections.items()}
    for look in _TOGETHER:
        for verdict in _looked(next(iter(them.values())), look, them):
            yield Diagnosis(look.__name__, "Shards", verdict.state, verdict.says, verdict.mend)


def _looked(
    db: Database, look: Callable[[Any], Iterator[CheckResult]], at: Any
) -> Iterator[CheckResult]:
    try:
        yield from look(at)
    except Distrusted as error:
        yield unknown(
            f"skipped: objects in the schema belong to {error} and would run with the rights "
            "of a superuser",
            f"connect as {error}",
        )
    except errors.InsufficientPrivilege as error:
        role = db.connection.info.user
        yield unknown(f"{role} has no right to check this: {error.diag.message_primary}")
    except _MISSING:
        yield NEEDS_SCHEMA
    except _TOO_LONG:
        yield unknown("the check took too long and was stopped")
    except psycopg.Error as error:
        if db.connection.closed:
            raise
        yield unknown(f"the check failed: {error.diag.message_primary or error}")
