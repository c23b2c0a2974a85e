"""Every exception Headrace raises, each with the SQLSTATE the engine raises it by.

HeadraceError
├── InvalidInput            QU001  an argument or an event that the engine refuses
│   └── InvalidPayload      QU002  a payload that could not be read back by everybody
│       └── PayloadTooLarge QU003
├── NotFound
│   ├── NamespaceNotFound   QU010
│   ├── QueueNotFound       QU011
│   ├── EventNotFound       QU012
│   ├── ScheduleNotFound    QU013
│   ├── TokenNotFound       QU014
│   └── CursorNotFound      QU015  a place that this log does not have: beyond its end, or of another database
├── NotFinished
│   ├── LeaseLost           QU020  the claim is no longer the current one; nothing was changed
│   └── FinishConflict      QU021  this attempt has already ended in another way
├── Conflict                       how things stand does not allow it; nothing was changed
│   ├── AlreadyEnded        QU024  the delivery has come to another end, and that stays
│   └── Busy                QU023  somebody has it at this moment: try again
├── IdempotencyConflict     QU022  an idempotency key that another event was published with
├── NotTaken                       a queue takes no event now, and nothing was published
│   ├── QueueFull           QU050  it is as deep as it may be
│   └── QueueDraining       QU051
├── QueueExists             QU052  a queue of this name takes something else
├── QueueNotEmpty           QU053  what a queue has would be lost with it
├── NamespaceNotEmpty       QU054  what a namespace has would be lost with it
├── QueueNotPaused          QU055  a queue is moved when it is paused and nothing in it is claimed
├── WrongIsolation          QU030  poll, tick and erase need READ COMMITTED, an export REPEATABLE READ
├── SchemaError
│   ├── SchemaMissing              the database has no Headrace schema
│   ├── SchemaMismatch      QU040  its schema is another release's than this one can work with
│   ├── SequenceBehind      QU042  its numbers are behind its tables, after a partial restore: headrace repair
│   └── NotInstallable      QU041  what this database cannot have as it is: an optional part, or a schema with others' objects in it
├── Unavailable                    PostgreSQL did not answer in time, or the connection was lost
│   ├── NotStored                  before the call could take effect: nothing was stored or changed
│   └── OutcomeUnknown             after it was sent: it took effect, or it did not
├── NotRunning                     a node was asked for what only a running one can do
└── EmbeddedError                  the private PostgreSQL could not be started

Unavailable is raised by clients over connections of their own; it is also a psycopg.OperationalError. Other errors of
PostgreSQL that are not ours (a deadlock) pass through as psycopg's, or as those of the library whose connection it was.
"""

from __future__ import annotations

from typing import ClassVar


class HeadraceError(Exception):
    """The root of everything Headrace raises."""

    sqlstate: ClassVar[str | None] = None


class InvalidInput(HeadraceError, ValueError):
    """An argument or an event that the engine refuses; nothing was stored."""

    sqlstate = "QU001"

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position
        """Which event of a batch it is about, from 0; None where that is not known."""


class InvalidPayload(InvalidInput):
    """A payload that is not JSON, or not JSON that every reader can read back."""

    sqlstate = "QU002"


class PayloadTooLarge(InvalidPayload):
    """A payload over the size limit; keep large data elsewhere and publish its address."""

    sqlstate = "QU003"


class NotFound(HeadraceError, LookupError):
    """Something that was named does not exist in this namespace."""


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
    """A cursor, or the number of an entry, that this log does not have: it is beyond the end, or of another database. An older
    backup was restored, perhaps. Go on after the number of an entry that is there; 0 is before the first."""

    sqlstate = "QU015"


class NotFinished(HeadraceError):
    """A finish that changed nothing for these events; others of the same call are finished."""

    def __init__(self, message: str, ids: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.ids = ids


class LeaseLost(NotFinished):
    """The claim ran out and somebody else has, or had, the event; this call changed nothing."""

    sqlstate = "QU020"


class FinishConflict(NotFinished):
    """This attempt has already ended in another way; what is stored stays."""

    sqlstate = "QU021"


class Conflict(HeadraceError):
    """How things stand does not allow what was asked for; nothing was changed."""


class AlreadyEnded(Conflict):
    """The delivery has come to another end, and that stays."""

    sqlstate = "QU024"


class Busy(Conflict):
    """Somebody is claiming, finishing or moving it at this moment: try again."""

    sqlstate = "QU023"


class IdempotencyConflict(HeadraceError):
    """The idempotency key was used before, for an event of another type, payload, tags or key; nothing was published."""

    sqlstate = "QU022"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.event_id: int | None = None
        """The event that the key is of."""
        self.position: int | None = None
        """Which event of a batch was refused, from 0."""


class NotTaken(HeadraceError):
    """A queue that takes these events takes none now; nothing was published, try again later."""


class QueueFull(NotTaken):
    """As many deliveries wait in the queue as its max_queue_depth allows: see wait_for_capacity."""

    sqlstate = "QU050"


class QueueDraining(NotTaken):
    """The queue is being emptied and takes nothing new until it is resumed."""

    sqlstate = "QU051"


class QueueExists(HeadraceError):
    """There is a queue of this name, and it takes other events than the one to be created."""

    sqlstate = "QU052"


class QueueNotEmpty(HeadraceError):
    """The queue has deliveries or dead letters that would be lost with it."""

    sqlstate = "QU053"


class NamespaceNotEmpty(HeadraceError):
    """A queue of the namespace has deliveries or dead letters that would be lost with it."""

    sqlstate = "QU054"


class QueueNotPaused(HeadraceError):
    """A queue that is to be moved is active, or something in it is claimed."""

    sqlstate = "QU055"


class WrongIsolation(HeadraceError):
    """poll, tick and erase must see what others have just committed, so they need READ COMMITTED; an export is of one
    moment, so it needs REPEATABLE READ."""

    sqlstate = "QU030"


class SchemaError(HeadraceError):
    """The database's schema is not one this release can work with."""


class SchemaMissing(SchemaError):
    pass


class SchemaMismatch(SchemaError):
    sqlstate = "QU040"


class SequenceBehind(SchemaError):
    """The sequence headrace.ids gave a number that is taken; nothing was stored. A part of a dump was restored, or a copy by logical
    replication took over: `headrace repair`, or `select headrace.repair_ids()`, brings it forward."""

    sqlstate = "QU042"


class NotInstallable(SchemaError):
    """This database cannot have an optional part, or the schema, as it is: the message says why. Nothing was changed."""

    sqlstate = "QU041"


class Unavailable(HeadraceError):
    """PostgreSQL did not answer in time, or the connection to it was lost."""


class NotStored(Unavailable):
    """The call did not take effect: no connection was free or could be made in time, or it was lost before the call was
    sent as a whole. Nothing was stored or changed; try again."""


class OutcomeUnknown(Unavailable):
    """The call was sent, and its answer did not come: it took effect, or it did not. Also raised when PostgreSQL stopped
    waiting for its synchronous standby: then the call took effect, and a failover may undo it. A publish with an
    idempotency key, a finish and a checkpoint may be repeated; they store nothing twice."""


class NotRunning(HeadraceError):
    """A node was asked for what only a running one can do."""


class EmbeddedError(HeadraceError):
    """The private PostgreSQL could not be found, initialised or started."""


def _tree(root: type[HeadraceError]) -> list[type[HeadraceError]]:
    return [root, *(error for branch in root.__subclasses__() for error in _tree(branch))]


BY_SQLSTATE = {error.sqlstate: error for error in _tree(HeadraceError) if error.sqlstate}
"""The one table of what the engine raises."""
