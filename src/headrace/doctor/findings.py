"""The findings of checks, and the limits from which on something is a finding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from headrace.doctor.database import Database

State: TypeAlias = Literal["fine", "warning", "problem", "unknown"]
"""warning: it will slow down or surprise users; problem: events may be lost, or are not handled;
unknown: the check could not be made."""


class CheckResult(msgspec.Struct, frozen=True):
    """The result of one check: a sentence, and the command that fixes it."""

    state: State
    says: str
    mend: str | None = None


class Diagnosis(msgspec.Struct, frozen=True):
    """The result of a check, and which one it was."""

    check: str
    about: str
    state: State
    says: str
    mend: str | None = None


@dataclass(frozen=True)
class Check:
    """One check. It gives at least one verdict, and one for each thing that it finds."""

    name: str
    about: str
    look: Callable[[Database], Iterator[CheckResult]]


@dataclass(frozen=True)
class Limits:
    """From when on something is a finding."""

    snapshot: timedelta = timedelta(minutes=5)
    """How long a transaction may be open."""
    dead_rows: int = 100_000
    """In a table of live deliveries, and more of them than live ones."""
    bloat: int = 512 * 1024 * 1024
    """Bytes of such a table with its indexes, and twenty times the size of its rows."""
    commits: timedelta = timedelta(seconds=5)
    """How long a commit may wait for the synchronous standby."""
    lag: timedelta = timedelta(seconds=30)
    """How long after the primary a standby may apply a commit."""
    behind: int = 256 * 1024 * 1024
    """Bytes of WAL that a standby may not have applied yet."""
    slot: int = 1024 * 1024 * 1024
    """Bytes of WAL that a slot with a reader may keep."""
    waiting: timedelta = timedelta(minutes=5)
    """How long a delivery may be ready without a claim."""
    claimed: timedelta = timedelta(hours=1)
    """How long a delivery may be in progress."""
    expired: timedelta = timedelta(minutes=1)
    """How long a lease may have expired before a tick ends it."""
    upkeep: timedelta = timedelta(hours=1)
    """How long the hourly upkeep may be overdue."""
    locks: float = 0.75
    """Of the locks that PostgreSQL has room for in a session, how many months there may be."""
    notifications: float = 0.5
    """Of PostgreSQL's queue of notifications, the part in use."""
    log: int = 20_000_000
    """Bytes of the log of an embedded PostgreSQL."""
    clock: timedelta = timedelta(seconds=1)
    """How far the clocks of this machine and of the database may be apart."""


def fine(says: str) -> CheckResult:
    return CheckResult("fine", says)


def warning(says: str, mend: str) -> CheckResult:
    return CheckResult("warning", says, mend)


def problem(says: str, mend: str) -> CheckResult:
    return CheckResult("problem", says, mend)


def unknown(says: str, mend: str | None = None) -> CheckResult:
    return CheckResult("unknown", says, mend)


NEEDS_SCHEMA = unknown("the check needs Headrace's schema of this release: see migration")
