"""Statements, and the calls that yield them: every verb is made of these.

A Statement is a question to the database as a value: its SQL, its parameters, how to read the
reply. A call (`Steps`) is a generator: it yields statements, is sent their replies (or thrown their
errors) and returns what the caller gets. Nothing here does any I/O. A runner executes `sql` with
`params` and gives the rows to `read`, or an error's SQLSTATE, message and detail to `explain`; so
any driver can run a Statement, and plain and async runners run the same calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from headrace.errors import (
    BY_SQLSTATE,
    HeadraceError,
    InvalidInput,
    SequenceBehind,
    UniqueKeyHeld,
    WrongShard,
)
from headrace.model import instant

T = TypeVar("T")
Row = tuple[Any, ...]

# SQLSTATEs of PostgreSQL itself for input that it cannot read, before the engine sees it.
UNREADABLE = {"22003", "22007", "22008", "22015", "22021", "22P02", "22P05", "54000", "54001"}
TIMES = {"22007", "22008"}
# PostgreSQL's message when a number of headrace.ids is already used, in a row of this month.
TAKEN = re.compile(r'"(events_\w+|leases|ready)_pkey"')
HOLDER = re.compile(r"the key is that of event (\d+)")  # in a detail

decode = msgspec.json.Decoder().decode
"""Decodes the payload of a claim. An unreadable one raises: its event is dead-lettered."""


def explain(sqlstate: str | None, message: str, detail: str | None) -> HeadraceError | None:
    """Our exception for an error of the server's; None: it is not ours, and passes through."""
    if sqlstate in UNREADABLE:
        return InvalidInput(message)
    if sqlstate == "23505" and TAKEN.search(message):
        return SequenceBehind(
            f"{message}; headrace repair brings the sequence headrace.ids forward"
        )
    if sqlstate == WrongShard.sqlstate:
        return WrongShard(message, detail)
    ours = BY_SQLSTATE.get(sqlstate or "")
    error = ours(message) if ours else None
    if isinstance(error, UniqueKeyHeld) and (holder := HOLDER.search(detail or "")):
        error.event_id = int(holder[1])
    return error


class Batchable(NamedTuple):
    """How a statement goes into one statement with others that are asked at the same moment."""

    namespace: str
    kind: Hashable
    """Those of one kind, in one namespace, can go together."""
    asked: Any
    """What this one asks for."""
    size: int
    """In bytes."""
    together: Callable[[Sequence[Any]], Any]
    """Makes the statement that asks for several; its reply has one reply for each. It does all of
    them or none."""
    may_wait: bool = False
    """It may have to wait for another session's transaction, and the others would wait, too."""


class Statement(msgspec.Struct, Generic[T], frozen=True):
    sql: str
    params: Sequence[Any]
    read: Callable[[list[Row]], T]
    explain: Callable[[str | None, str, str | None], HeadraceError | None] = explain
    has_its_own_time: bool = False
    """Of many that a call consists of: each of them may take as long as a call may."""
    batchable: Batchable | None = None
    """None: it goes alone. Else it is the only statement of its call."""


class Together(NamedTuple):
    """Statements for one transaction, made while the ones before are being executed."""

    statements: Iterable[Statement[Any]]


class Around(NamedTuple):
    """A call inside a context manager, which is entered before the call has a connection, and left
    after the call's end. `steps` is given what the context manager gives. A call yields this as its
    first step, or not at all."""

    manager: AbstractContextManager[Any]
    steps: Callable[[Any], Steps[Any]]


Steps: TypeAlias = Generator[Statement[Any] | Together | Around, Any, T]
"""A call: all its statements go by one connection."""
Turns: TypeAlias = Generator[Statement[Any] | Steps[Any] | float, Any, T]
"""A call that waits: each statement and each call of it has a connection for its own time only; a
number is so many seconds to wait, without a connection."""


def ask(statement: Statement[T]) -> Steps[T]:
    """The call that consists of one statement."""
    reply: T = yield statement
    return reply


def done(call: str, *params: Any) -> Statement[None]:
    return Statement(f"select {call}", params, lambda rows: None)


def instant_or_none(raw: bytes | None) -> datetime | None:
    return None if raw is None else instant(raw)


def timed(row: Row, *places: int) -> list[Any]:
    values = list(row)
    for place in places:
        values[place] = instant_or_none(row[place])
    return values
