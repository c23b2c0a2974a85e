"""The state of a queue, its checkpoints, its recoveries, its export and import."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from tempfile import TemporaryFile
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.engine.arguments import MAX_ID
from headrace.model import Imported, LowWater, Recovery
from headrace.server.api.values import Moment, precise_moment, shape_of, told
from headrace.server.http.operation import (
    NO_STORE,
    Call,
    Limit,
    Operation,
    Query,
    answer,
)
from headrace.server.http.refusal import NO_SNIFFING, Refusal
from headrace.server.long_poll import until_gone

NDJSON = "application/x-ndjson"
MAX_FILE = 4 * 1024**3  # bytes; the command line imports larger ones


class Metadata(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """More about an event; unknown values are left out."""

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
    """Totals of a queue."""

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
    """The unfinished events, by id; the header X-Total-Count has the number of all."""
    checkpointId: str | None
    """All events up to this one are finished. Null: none yet."""
    queueMetrics: QueueMetrics
    config: QueueConfig
    status: Literal["active", "paused", "draining"]
    created_at: str
    updated_at: str


class WhichEvents(Query, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=0, le=1000)] = 100
    """Events in one answer."""
    after: Annotated[int, Meta(ge=0, le=MAX_ID)] = 0
    """Only events with higher ids: for the next page."""


async def show_state(call: Call) -> Response:
    """The state of a queue: its unfinished events with their payloads, at most `limit`; its
    checkpoint, metrics, settings and status. The header X-Total-Count has the number of unfinished
    events, followed by a plus where counting stopped before the end."""
    query: WhichEvents = call.query
    state = await call.client.state(limit=query.limit, after=query.after)
    count = f"{state.total}{'' if state.total_is_exact else '+'}"
    return answer(state, headers=NO_STORE | {"X-Total-Count": count})


class LowWaterBody(shape_of(LowWater)):  # type: ignore[misc]
    """The progress of a queue now, and what holds it back."""


class CheckpointBody(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a queue at some time."""

    id: str
    queue_id: str
    checkpoint_id: str | None
    event_count: int
    """How many events the queue had processed in all."""
    created_at: str


class TakenCheckpoint(CheckpointBody, frozen=True, kw_only=True):
    """A checkpoint that was just taken, and what holds the queue back."""

    lag: int
    lag_is_exact: bool
    oldest_at: str | None
    reason: str | None


class CheckpointList(msgspec.Struct, frozen=True):
    """The progress of a queue now, and at earlier times, the newest first."""

    now: LowWaterBody
    checkpoints: list[CheckpointBody]


class WhichCheckpoints(Query, frozen=True, kw_only=True):
    limit: Limit = 100
    before: Moment | None = None
    """Only checkpoints from before this time."""


async def list_checkpoints(call: Call) -> Response:
    """The checkpoints of a queue: its progress now, and at earlier times."""
    query: WhichCheckpoints = call.query
    low = await call.client.low_water()
    history = await call.client.checkpoints(limit=query.limit, before=query.before)
    now = told(LowWaterBody, low, precise_moment)
    checkpoints = [told(CheckpointBody, one, precise_moment) for one in history]
    return answer(CheckpointList(now, checkpoints))


async def take_checkpoint(call: Call) -> Response:
    """Save the state of a queue, and take a checkpoint."""
    return answer(told(TakenCheckpoint, await call.client.checkpoint(), precise_moment), 201)


class RecoveryBody(msgspec.Struct, frozen=True, kw_only=True):
    """The events that a node recovered from a previous run that crashed."""

    id: str = "recovery-sequence-log"
    checkpointId: str | None
    eventsRecovered: int
    recoveryStartTime: str
    recoveryCompleteTime: str | None
    status: Literal["running", "completed"]


class RecoveryList(msgspec.Struct, frozen=True):
    """Recoveries, the newest first."""

    recoveries: list[RecoveryBody]


class WhichRecoveries(Query, frozen=True, kw_only=True):
    limit: Limit = 100


async def list_recoveries(call: Call) -> Response:
    """The recoveries of a queue: nodes took over events of previous runs that crashed."""
    query: WhichRecoveries = call.query
    found: list[Recovery] = await call.client.recoveries(limit=query.limit)
    return answer(RecoveryList([_recovery(one) for one in found]))


def _recovery(one: Recovery) -> RecoveryBody:
    completed = one.recovery_complete_time
    return RecoveryBody(
        checkpointId=one.checkpoint_id,
        eventsRecovered=one.events_recovered,
        recoveryStartTime=precise_moment(one.recovery_start_time),
        recoveryCompleteTime=precise_moment(completed) if completed else None,
        status=one.status,
    )


async def export_state(call: Call) -> Response:
    """Export a queue as a file: its settings and all its events with their payloads, dead letters
    too, from one snapshot. Each line is a JSON document; the last one marks the file as
    complete."""
    return await _exported(call, move=False)


async def export_for_move(call: Call) -> Response:
    """Export a queue as a file, to import it elsewhere. The queue must be paused or draining, and
    is paused then. Claims are revoked, so that no worker can finish them here any more; their
    events are ready where the file is imported."""
    return await _exported(call, move=True)


async def _exported(call: Call, *, move: bool) -> Response:
    lines = call.client.export_state(move=move, actor=call.actor)
    first = await anext(lines)  # a refusal comes before the first byte is sent
    return Lines(first, lines)


class Lines(Response):
    """An answer that is sent while it is read. If reading fails, the connection is cut: the file
    lacks its last line."""

    media_type = NDJSON

    def __init__(self, first: bytes, lines: AsyncIterator[bytes]) -> None:
        super().__init__(headers=NO_STORE | NO_SNIFFING)
        del self.headers["content-length"]
        self._first, self._lines = first, lines

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._lines):  # type: ignore[type-var]
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if scope["method"] != "HEAD" and not await self._is_sent(receive, send):
                return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _is_sent(self, receive: Receive, send: Send) -> bool:
        """Send all lines, unless the client leaves: then stop reading."""
        sending = asyncio.ensure_future(self._send(send))
        gone = asyncio.ensure_future(until_gone(receive))
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                await sending
            return sending.done()
        finally:
            gone.cancel()
            sending.cancel()
            await asyncio.wait({sending})

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.body", "body": self._first, "more_body": True})
        async for line in self._lines:
            await send({"type": "http.response.body", "body": line, "more_body": True})


async def import_state(call: Call) -> Response:
    """Import an exported file into a queue, which is created if it does not exist; other queues
    are not touched. All of the file or nothing; events that the queue had before stay."""
    await call.client.queues()  # raises if the namespace does not exist: an import creates none
    with TemporaryFile() as file:
        size = 0
        try:
            async for chunk in call.request.stream():
                size += len(chunk)
                if size > call.operation.body_limit:
                    raise Refusal(
                        *(
                            413,
                            "body_too_large",
                            "The file has more than 4 GiB: import it with `headrace state import`.",
                        ),
                        headers={"Connection": "close"},
                    )
                file.write(chunk)
        except ClientDisconnect:
            raise Refusal(
                400, "disconnected", "The body is incomplete: the connection was closed early."
            ) from None
        file.seek(0)
        done = await call.client.import_state(file, actor=call.actor)
    return answer(done)


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
    Operation(
        *("GET", _QUEUE + "/export", export_state, "admin", Query),
        answers={200: str},
        produces=NDJSON,
    ),
    Operation(
        *("POST", _QUEUE + "/export", export_for_move, "admin", Query),
        answers={200: str},
        produces=NDJSON,
    ),
    Operation(
        *("POST", _QUEUE + "/import", import_state, "admin", Query),
        body=str,
        body_limit=MAX_FILE,
        streams_body=True,
        media_types=(NDJSON,),
        answers={200: Imported},
    ),
)
