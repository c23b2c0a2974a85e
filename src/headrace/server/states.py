"""The state of a queue, how far it has come, and what was taken over in it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response

from headrace.arguments import MAX_ID
from headrace.model import Checkpoint, Recovery
from headrace.server.operations import NO_STORE, Call, Limit, Operation, Query, answer
from headrace.server.wire import Moment, precise_moment


class Metadata(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What else is known of an event; what is not is left out."""

    retryCount: int
    correlationId: str | None = None
    causationId: str | None = None
    traceId: str | None = None
    lastError: str | None = None
    lastErrorTime: str | None = None
    processingStartTime: str | None = None


class StateEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An unfinished event."""

    eventId: str
    pattern: str
    version: str
    source: dict[str, str]
    timestamp: str
    payload: Any
    metadata: Metadata


class QueueMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """What has happened in a queue in all."""

    totalProcessed: int
    totalErrors: int
    avgProcessingTimeMs: float


class QueueConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a queue; null: no limit."""

    maxQueueDepth: int | None
    batchSize: int | None
    processingInterval: int
    """Milliseconds."""
    persistenceThreshold: int | None
    highWatermark: int | None


class StateBody(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a queue now."""

    id: str
    """namespace/queue"""
    events: list[StateEvent]
    """The unfinished ones, in the order of their ids; how many there are in all is said by the header X-Total-Count."""
    checkpointId: str | None
    """Everything up to this event is finished. Null: nothing yet."""
    queueMetrics: QueueMetrics
    config: QueueConfig
    status: Literal["active", "paused", "draining"]
    created_at: str
    updated_at: str


class WhichEvents(Query, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=0, le=1000)] = 100
    """Events that are told at once."""
    after: Annotated[int, Meta(ge=0, le=MAX_ID)] = 0
    """Go on after the event with this id."""


async def show_state(call: Call) -> Response:
    """The state of a queue: its unfinished events with their payloads, at most `limit`; its checkpoint, metrics, settings
    and status. The header X-Total-Count says how many events are unfinished, with a plus behind it where there are
    more than were counted."""
    query: WhichEvents = call.query
    state = await call.client.state(limit=query.limit, after=query.after)
    count = f"{state.total}{'' if state.total_is_exact else '+'}"
    return answer(state, headers=NO_STORE | {"X-Total-Count": count})


class CheckpointBody(msgspec.Struct, frozen=True, kw_only=True):
    """How far a queue had come at some time."""

    id: str
    queue_id: str
    checkpoint_id: str | None
    event_count: int
    """How many events it had processed in all."""
    created_at: str


class LowWaterBody(msgspec.Struct, frozen=True, kw_only=True):
    """How far a queue has come by now, and why no further."""

    checkpoint_id: str | None
    """Everything up to this event is finished, and nothing can be committed below it any more."""
    event_count: int
    lag: int
    """How many events are unfinished."""
    lag_is_exact: bool
    """False: there are more."""
    oldest_at: str | None
    """When the oldest of them was published."""
    reason: str | None
    """What it waits for: the oldest unfinished delivery, or an open transaction. Null: it is at the end."""


class TakenCheckpoint(CheckpointBody, frozen=True, kw_only=True):
    """A checkpoint that was just taken, and why it is no further."""

    lag: int
    lag_is_exact: bool
    oldest_at: str | None
    reason: str | None


class CheckpointList(msgspec.Struct, frozen=True):
    """How far a queue is, and how far it was at which time, the newest first."""

    now: LowWaterBody
    checkpoints: list[CheckpointBody]


class WhichCheckpoints(Query, frozen=True, kw_only=True):
    limit: Limit = 100
    before: Moment | None = None
    """Only those from before this time."""


async def list_checkpoints(call: Call) -> Response:
    """The checkpoints of a queue: how far it is now, and how far it was at which time."""
    query: WhichCheckpoints = call.query
    low = await call.client.low_water()
    history = await call.client.checkpoints(limit=query.limit, before=query.before)
    now = LowWaterBody(**_fields(LowWaterBody, low))
    return answer(CheckpointList(now, [_told(CheckpointBody, one) for one in history]))


async def take_checkpoint(call: Call) -> Response:
    """Save the state of a queue and a checkpoint of it."""
    return answer(_told(TakenCheckpoint, await call.client.checkpoint()), 201)


class RecoveryBody(msgspec.Struct, frozen=True, kw_only=True):
    """What a node took over from an earlier start of itself that had died."""

    id: str = "recovery-sequence-log"
    checkpointId: str | None
    eventsRecovered: int
    recoveryStartTime: str
    recoveryCompleteTime: str | None
    status: Literal["running", "completed"]


class RecoveryList(msgspec.Struct, frozen=True):
    """The newest first."""

    recoveries: list[RecoveryBody]


class WhichRecoveries(Query, frozen=True, kw_only=True):
    limit: Limit = 100


async def list_recoveries(call: Call) -> Response:
    """What nodes took over in a queue from earlier starts of themselves that had died."""
    query: WhichRecoveries = call.query
    found: list[Recovery] = await call.client.recoveries(limit=query.limit)
    return answer(RecoveryList([_recovery(one) for one in found]))


def _recovery(one: Recovery) -> RecoveryBody:
    return RecoveryBody(
        checkpointId=one.checkpoint_id,
        eventsRecovered=one.events_recovered,
        recoveryStartTime=precise_moment(one.recovery_start_time) or "",
        recoveryCompleteTime=precise_moment(one.recovery_complete_time),
        status=one.status,
    )


def _told(kind: type[Any], checkpoint: Checkpoint) -> Any:
    return kind(**_fields(kind, checkpoint))


def _fields(kind: type[Any], record: Any) -> dict[str, Any]:
    values = {name: getattr(record, name) for name in kind.__struct_fields__}
    return {
        name: precise_moment(value) if isinstance(value, datetime) else value
        for name, value in values.items()
    }


_QUEUE = "/queues/{namespace}/{queue}"
OPERATIONS = (
    Operation("GET", _QUEUE + "/state", show_state, "read", WhichEvents, answers={200: StateBody}),
    Operation(
        *("GET", _QUEUE + "/checkpoints", list_checkpoints, "read", WhichCheckpoints),
        answers={200: CheckpointList},
    ),
    Operation(
        *("POST", _QUEUE + "/checkpoint", take_checkpoint, "admin", Query),
        answers={201: TakenCheckpoint},
    ),
    Operation(
        *("GET", _QUEUE + "/recoveries", list_recoveries, "read", WhichRecoveries),
        answers={200: RecoveryList},
    ),
)
