"""What a statement is, and what all of them use."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from headrace.errors import (
    BY_SQLSTATE,
    HeadraceError,
    InvalidInput,
    SequenceBehind,
)
from headrace.model import (
    instant,
)

T = TypeVar("T")
Row = tuple[Any, ...]

# What PostgreSQL itself says to input that it cannot read, before the engine sees it.
UNREADABLE = {"22003", "22007", "22008", "22015", "22021", "22P02", "22P05", "54000", "54001"}
TIMES = {"22007", "22008"}
# What PostgreSQL says when a number of headrace.ids is taken, in a row that is not older than this month.
TAKEN = re.compile(r'"(events_\w+|leases|ready)_pkey"')

decode = msgspec.json.Decoder().decode
"""Of a payload that is claimed: one that cannot be read is dead-lettered, so the error is wanted."""


def explain(sqlstate: str | None, message: str, detail: str | None) -> HeadraceError | None:
    """Our exception for an error of the server's; None: it is not ours, and passes through."""
    if sqlstate in UNREADABLE:
        return InvalidInput(message)
    if sqlstate == "23505" and TAKEN.search(message):
        return SequenceBehind(
            f"{message}; headrace repair brings the sequence headrace.ids forward"
        )
    ours = BY_SQLSTATE.get(sqlstate or "")
    return ours(message) if ours else None


class Statement(msgspec.Struct, Generic[T], frozen=True):
    sql: str
    params: Sequence[Any]
    read: Callable[[list[Row]], T]
    explain: Callable[[str | None, str, str | None], HeadraceError | None] = explain
    has_its_own_time: bool = False
    """Of many that a call consists of: each of them may take as long as a call may."""


class Together(NamedTuple):
    """Statements for one transaction, made while the ones before are being executed."""

    statements: Iterable[Statement[Any]]


def version() -> Statement[tuple[int, int]]:
    return Statement(
        "select major, minor from headrace.version()", (), lambda rows: (rows[0][0], rows[0][1])
    )


def ids_behind() -> Statement[int | None]:
    """The highest number in the tables, if the sequence is behind it."""
    return Statement("select headrace.ids_behind()", (), lambda rows: rows[0][0])


def repair_ids(actor: str | None) -> Statement[int | None]:
    return Statement("select headrace.repair_ids(%s)", (actor,), lambda rows: rows[0][0])


class Proof(NamedTuple):
    """Of a database that commits."""

    version: tuple[int, int]
    read_only: bool


def prove_commit() -> Statement[Proof]:
    """A commit that changes nothing and yet has to be written, and to wait for a synchronous standby. Without a function of
    the schema, which may be another release's."""
    return Statement(
        "select v.major, v.minor, pg_catalog.current_setting('transaction_read_only') operator(pg_catalog.=) 'on', "
        "case when not pg_catalog.pg_is_in_recovery() "
        "then pg_catalog.pg_logical_emit_message(true, 'headrace', '') end from headrace.version() v",
        (),
        lambda rows: Proof((rows[0][0], rows[0][1]), rows[0][2]),
    )


def done(call: str, *params: Any) -> Statement[None]:
    return Statement(f"select {call}", params, lambda rows: None)


def instant_or_none(raw: bytes | None) -> datetime | None:
    return None if raw is None else instant(raw)


def timed(row: Row, *places: int) -> list[Any]:
    values = list(row)
    for place in places:
        values[place] = instant_or_none(row[place])
    return values
