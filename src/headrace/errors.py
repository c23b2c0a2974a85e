"""Every exception that Headrace raises, with the SQLSTATE that the engine raises it by.

HeadraceError
├── InvalidInput            QU001  an argument or an event that the engine refuses
│   └── InvalidPayload      QU002  a payload that is not JSON, or that some reader could not read back
│       └── PayloadTooLarge QU003
├── NotFound
│   ├── NamespaceNotFound   QU010
│   ├── QueueNotFound       QU011
│   ├── EventNotFound       QU012
│   ├── ScheduleNotFound    QU013
│   ├── TokenNotFound       QU014
│   └── CursorNotFound      QU015  an entry that this log does not have: beyond its end, or of another database
├── NotFinished
│   ├── LeaseLost           QU020  the claim is not the current one; nothing was changed
│   └── FinishConflict      QU021  this attempt has already ended in another way
├── Conflict                       the current state does not allow the call; nothing was changed
│   ├── AlreadyEnded        QU024  the delivery has already ended in another way
│   ├── NotEnded            QU025  the delivery is unfinished
│   ├── UniqueKeyHeld       QU026  another unfinished event holds the unique key
│   └── Busy                QU023  another session holds it at this moment: retry
├── WrongShard              QU060  another shard is the home of the key; nothing was published
├── PartlyStored                   of a batch for several shards, one stored its part and another did not
├── IdempotencyConflict     QU022  another event was published with the same idempotency key
├── NotTaken                       a queue accepts no events now; nothing was published
│   ├── QueueFull           QU050  the queue has reached its maximum depth
│   └── QueueDraining       QU051  the queue is draining
├── QueueExists             QU052  a queue of this name takes other events
├── QueueNotEmpty           QU053  the queue has deliveries or dead letters
├── NamespaceNotEmpty       QU054  the namespace has deliveries or dead letters
├── QueueNotPaused          QU055  a move needs a paused queue without claims
├── WrongIsolation          QU030  poll, tick, erase, rerun: READ COMMITTED; an export: REPEATABLE READ
├── SchemaError
│   ├── SchemaMissing              the database has no Headrace schema
│   ├── SchemaMismatch      QU040  the schema belongs to an incompatible release
│   ├── SequenceBehind      QU042  the id sequence is behind the tables, or not its shard's: run headrace repair
│   ├── ShardMismatch              a server is not the shard that it was, or one that fits the others
│   └── NotInstallable      QU041  an optional part or the schema cannot be installed in this database
├── Unavailable                    PostgreSQL did not answer in time, or the connection was lost
│   ├── NotStored                  before the call took effect: nothing was stored or changed
│   └── OutcomeUnknown             after the call was sent: it took effect, or it did not
├── NotRunning                     the node is not running
└── EmbeddedError                  the private PostgreSQL could not be started

Clients over connections of their own raise Unavailable; it is also a psycopg.OperationalError. Other
errors of PostgreSQL (a deadlock) pass through as errors of psycopg, or of the library whose connection
it was.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar


class HeadraceError(Exception):
    """The root of everything Headrace raises."""

    sqlstate: ClassVar[str | None] = None


class InvalidInput(HeadraceError, ValueError):
    """The engine refuses an argument or an event; nothing was stored."""

    sqlstate = "QU001"

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position
        """The position of the refused event in its batch, from 0; None if it is not known."""


class InvalidPayload(InvalidInput):
    """A payload that is not JSON, or not JSON that every reader can read back."""

    sqlstate = "QU002"


class PayloadTooLarge(InvalidPayload):
    """A payload over the size limit; store large data elsewhere and publish its address."""

    sqlstate = "QU003"


class NotFound(HeadraceError, LookupError):
    """The named object does not exist in this namespace."""


class NamespaceNotFound(NotFound):
    sqlstate = "QU010"


class QueueNotFound(NotFound):
    sqlstate = "QU011"


class EventNotFound(NotFound):
    sqlstate = "QU012"


class ScheduleNotFound(NotFound):
    sqlstate = "QU013"


class TokenNotFound(NotFound):
    sqlstate = "QU014"


class CursorNotFound(NotFound):
    """This log does not have the cursor or the entry: it is beyond the end, or of another database.
    Perhaps an older backup was restored. Continue after an existing entry; 0 is before the first."""

    sqlstate = "QU015"


class NotFinished(HeadraceError):
    """A finish that changed nothing for these events; others of the same call are finished."""

    def __init__(self, message: str, ids: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.ids = ids


class LeaseLost(NotFinished):
    """The lease ended and another worker has, or had, the event; this call changed nothing."""

    sqlstate = "QU020"


class FinishConflict(NotFinished):
    """This attempt has already ended in another way; the stored outcome stays."""

    sqlstate = "QU021"


class Conflict(HeadraceError):
    """The current state does not allow the call; nothing was changed."""


class AlreadyEnded(Conflict):
    """The delivery has already ended in another way; the stored outcome stays."""

    sqlstate = "QU024"


class NotEnded(Conflict):
    """The delivery is unfinished: only one that has ended is run again."""

    sqlstate = "QU025"


class UniqueKeyHeld(Conflict):
    """Another unfinished event holds the unique key of the event that is to be delivered again."""

    sqlstate = "QU026"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.event_id: int | None = None
        """The event that holds the key."""


class Busy(Conflict):
    """Another session is claiming, finishing or moving it at this moment: retry."""

    sqlstate = "QU023"


class WrongShard(HeadraceError):
    """Another shard is the home of the key, or has to be asked about the idempotency key first;
    nothing was published. A client of all shards publishes there by itself, unless it joins a
    transaction of yours."""

    sqlstate = "QU060"

    def __init__(self, message: str, detail: str | None = None) -> None:
        super().__init__(message)
        self.slot: int | None = None
        self.home: int | None = None
        self.version: int | None = None
        """The slot of the key, the shard that is its home, and how often the slot has moved."""
        self.ask: tuple[int, ...] = ()
        """The shards that may know an idempotency key of the slot."""
        if told := _HOME.match(detail or ""):
            self.slot, self.home, self.version = int(told[1]), int(told[2]), int(told[3])
            self.ask = tuple(int(one) for one in told[4].split(",") if one)


_HOME = re.compile(r"slot (\d+), home (\d+), version (\d+), ask {([\d,]*)}")


class PartlyStored(HeadraceError):
    """A batch went to several shards, and one of them did not store its part: `__cause__` says why.
    What has idempotency keys may be published again as it is."""

    def __init__(self, message: str, ids: Sequence[int | None]) -> None:
        super().__init__(message)
        self.ids = tuple(ids)
        """The ids of the events that are stored, in the order of the batch; None for the others."""


class IdempotencyConflict(HeadraceError):
    """The idempotency key belongs to a different event (type, payload, tags or key); nothing was
    published."""

    sqlstate = "QU022"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.event_id: int | None = None
        """The event that the key belongs to."""
        self.position: int | None = None
        """The position of the refused event in its batch, from 0."""


class NotTaken(HeadraceError):
    """A queue that takes these events accepts none now; nothing was published, retry later."""


class QueueFull(NotTaken):
    """The queue has reached its max_queue_depth: see wait_for_capacity."""

    sqlstate = "QU050"


class QueueDraining(NotTaken):
    """The queue is draining and accepts no events until it is resumed."""

    sqlstate = "QU051"


class QueueExists(HeadraceError):
    """A queue of this name exists, and takes other events than the one to be created."""

    sqlstate = "QU052"


class QueueNotEmpty(HeadraceError):
    """The queue has deliveries or dead letters that would be lost with it."""

    sqlstate = "QU053"


class NamespaceNotEmpty(HeadraceError):
    """A queue of the namespace has deliveries or dead letters that would be lost with it."""

    sqlstate = "QU054"


class QueueNotPaused(HeadraceError):
    """A queue to be moved is active, or has claims."""

    sqlstate = "QU055"


class WrongIsolation(HeadraceError):
    """poll, tick, erase and rerun must see the latest commits, so they need READ COMMITTED; an export is a
    snapshot, so it needs REPEATABLE READ."""

    sqlstate = "QU030"


class SchemaError(HeadraceError):
    """This release cannot work with the schema of the database."""


class SchemaMissing(SchemaError):
    pass


class SchemaMismatch(SchemaError):
    sqlstate = "QU040"


class SequenceBehind(SchemaError):
    """The sequence headrace.ids gave a number that is in use, and nothing was stored; or its
    numbers would be another shard's, and the client did not connect. A part of a dump was
    restored, a logical replica took over, or the sequence was altered: `headrace repair`, or
    `select headrace.repair_ids()`, corrects it."""

    sqlstate = "QU042"


class ShardMismatch(SchemaError):
    """A server is not the shard that it is taken for: it has another number or identity than before,
    or another stride than the others, or two of those named are the same shard."""


class NotInstallable(SchemaError):
    """An optional part or the schema cannot be installed in this database: the message says why.
    Nothing was changed."""

    sqlstate = "QU041"


class Unavailable(HeadraceError):
    """PostgreSQL did not answer in time, or the connection to it was lost."""


class NotStored(Unavailable):
    """The call did not take effect: no connection was free or could be made in time, or the
    connection was lost before the whole call was sent. Nothing was stored or changed; retry."""


class OutcomeUnknown(Unavailable):
    """The call was sent, and its reply did not arrive: it took effect, or it did not. Also
    raised when PostgreSQL stopped waiting for its synchronous standby: then the call took
    effect, and a failover may undo it. A publish with an idempotency key, a finish and a
    checkpoint may be repeated; they store nothing twice."""


class NotRunning(HeadraceError):
    """The call needs a running node."""


class EmbeddedError(HeadraceError):
    """The private PostgreSQL could not be found, initialised or started."""


def _tree(root: type[HeadraceError]) -> list[type[HeadraceError]]:
    return [root, *(error for branch in root.__subclasses__() for error in _tree(branch))]


BY_SQLSTATE = {error.sqlstate: error for error in _tree(HeadraceError) if error.sqlstate}
"""The exceptions that the engine raises, by SQLSTATE."""
