"""Claims, the results of handling them, and the verdicts on those."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec

from headrace.model.backoff import Backoff
from headrace.model.events import DescribedByDetails, Status
from headrace.model.schedules import scheduled_for
from headrace.model.times import Duration, instant, said_time, told_details

Dispatch: TypeAlias = Literal["atomic", "collect"]
"""How several handlers of one event run. atomic: they succeed or fail together. collect: each runs
on its own, and their errors are collected."""


class Claim(msgspec.Struct, frozen=True):
    """The proof of a claim, for a caller that does not have the event itself: see `Claimed`."""

    id: int
    attempt: int
    lease: int | None = None
    held: bool = False
    lease_token: str | None = None


class Claimed(DescribedByDetails, msgspec.Struct, frozen=True, gc=False, weakref=False):
    """An event that this worker holds until its lease ends; (id, attempt) proves the claim.

    A poll creates up to a thousand of them, and most handlers read only the payload: fields that
    are seldom read are kept as PostgreSQL sent them, and decoded on demand.
    """

    id: int
    attempt: int
    lease: int
    held: bool
    """Claimed alone (`each`, or a suspect): finishing it touches no other claim."""
    type: str
    tags: tuple[str, ...]
    payload: Any
    priority: int
    retry_count: int
    crashes: int
    max_retries: int
    lease_expires_at: datetime
    raw_created_at: bytes
    raw_details: bytes | None
    lease_token: str | None = None
    """A secret that proves the claim. All events claimed together have the same."""
    namespace: str = "default"
    raw_processing_started_at: bytes = bytes(8)

    def __repr__(self) -> str:
        return (
            f"Claimed(id={self.id}, attempt={self.attempt}, type={self.type!r}, "
            f"tags={self.tags}, payload={self.payload!r})"
        )

    @property
    def created_at(self) -> datetime:
        return instant(self.raw_created_at)

    @property
    def status(self) -> Status:
        """PROCESSING: the status when the event was claimed. `attempts` and `updated_at` are of
        that moment, too."""
        return "PROCESSING"

    @property
    def attempts(self) -> int:
        return self.attempt

    @property
    def processing_started_at(self) -> datetime:
        """When it was claimed, by the database's clock."""
        return instant(self.raw_processing_started_at)

    @property
    def updated_at(self) -> datetime:
        return self.processing_started_at

    @property
    def details(self) -> dict[str, Any]:
        return told_details(self.raw_details)

    @property
    def title(self) -> str:
        return self.details.get("title") or self.type

    @property
    def scheduled_task_id(self) -> str | None:
        return self.details.get("scheduled_task_id")

    @property
    def scheduled_for(self) -> datetime | None:
        """The time for which its schedule fired it."""
        return scheduled_for(self.details)

    @property
    def emitted_at(self) -> datetime | None:
        """As in Event."""
        return said_time(self.details, "emitted_at")


AnyClaim: TypeAlias = Claimed | Claim


class Completed(msgspec.Struct, frozen=True):
    """The attempt succeeded."""

    claimed: AnyClaim
    execution_time_ms: int | None = None
    status_code: int | None = None


class Failed(msgspec.Struct, frozen=True):
    """The attempt failed: the event is retried by its retry policy, and dead-lettered when no retry
    is left."""

    claimed: AnyClaim
    error: str | BaseException = ""
    execution_time_ms: int | None = None
    status_code: int | None = None
    retry_in: Duration | None = None
    """Delay before the retry, instead of the policy's."""
    max_retries: int | None = None
    """The handler's retry policy, as is `backoff`; the event's own has precedence."""
    backoff: Backoff | None = None
    reason: str | None = None
    """Dead-letter the event now, for this reason."""
    status: Literal["FAILED", "COMPLETED_WITH_ERRORS"] | None = None
    """Status of the dead letter. None: COMPLETED_WITH_ERRORS if the event was claimed with
    `dispatch="collect"`, else FAILED."""
    last_reason: str | None = None
    """Reason of the dead letter, if the policy allows no further retry. None: the engine's own."""
    progress: Any = None
    """Progress for the next attempt, as by `save_progress`; None keeps what was saved before."""


class Released(msgspec.Struct, frozen=True):
    """The event is handed back unfinished: it is ready again, and no retry is charged. It is ready
    at once the first time, and later with each further release in a row."""

    claimed: AnyClaim
    execution_time_ms: int | None = None
    status_code: int | None = None
    progress: Any = None
    """As in Failed."""


class CutOff(msgspec.Struct, frozen=True):
    """The handler lost its connection to PostgreSQL: the attempt ends as if its lease had expired.
    The first time makes the event a suspect, which is claimed alone from then on; a suspect is
    charged a retry."""

    claimed: AnyClaim
    error: str = ""
    execution_time_ms: int | None = None
    status_code: int | None = None
    max_retries: int | None = None
    """As in Failed; so are the fields below."""
    last_reason: str | None = None
    progress: Any = None
    status: Literal["FAILED", "COMPLETED_WITH_ERRORS"] | None = None


Result: TypeAlias = Completed | Failed | Released | CutOff


class Verdict(msgspec.Struct, frozen=True):
    """The engine's answer to a result."""

    verdict: Literal["counted", "repeated", "conflict", "lost"]
    """counted: this call ended the attempt. repeated: the attempt had ended in the same way before,
    and this is the first answer again. conflict: it had ended in another way. lost: the claim is
    not the current one."""
    action: str | None = None
    """How the attempt ended, in the log's words; None: it was lost, and no log entry tells."""
    at: datetime | None = None
    """When the attempt ended; None if this call completed it."""
    retry_at: datetime | None = None
    """When the event will be retried; None: never."""
    retry_count: int | None = None
    max_retries: int | None = None


class Extended(msgspec.Struct, frozen=True):
    """The engine's answer to a heartbeat."""

    state: Literal["held", "busy", "lost"]
    """busy: another transaction has the claim locked for a moment. It is not lost: ask again."""
    lease_expires_at: datetime | None = None
    taken: Mapping[int, str] = {}
    """The events of this lease that were taken out of it, with the action: CANCELLED, RESET or
    ERASED. Their attempts are lost; those of the other events go on."""


class Tick(msgspec.Struct, frozen=True):
    """The work of one tick."""

    due: int
    expired: int
    fired: int
    """Events that schedules fired."""
    kept_up: bool
    more: bool
    """A limit was reached: there is more to do at once."""
    at: datetime
