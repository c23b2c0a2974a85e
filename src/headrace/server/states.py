"""The state of a queue, how far it has come, and what was taken over in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import datetime
from tempfile import TemporaryFile
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.arguments import MAX_ID
from headrace.model import Checkpoint, Imported, Recovery
from headrace.server.failures import NO_SNIFFING, Refusal
from headrace.server.operations import NO_STORE, Call, Limit, Operation, Query, answer
from headrace.server.waiting import until_gone
from headrace.server.wire import Moment, precise_moment

NDJSON = "application/x-ndjson"
MAX_FILE = 4 * 1024**3  # bytes; larger ones go by the command line


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


async def export_state(call: Call) -> Response:
    """A queue as a file: its settings and all its events with their payloads, dead letters too, of one moment. A line is a
    JSON document, and the last one says that it is whole."""
    return await _exported(call, move=False)


async def export_for_move(call: Call) -> Response:
    """A queue as a file, to be imported elsewhere. It must be paused or draining, and is paused. What is claimed is taken back,
    so that nobody can finish it here any more; it is ready where the file is imported."""
    return await _exported(call, move=True)


async def _exported(call: Call, *, move: bool) -> Response:
    lines = call.client.export_state(move=move, actor=call.actor)
    first = await anext(lines)  # what is refused is refused before anything is sent
    return Lines(first, lines)


class Lines(Response):
    """An answer that is sent while it is read. If that fails in between, the connection is cut, and the file is not whole."""

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
        """Send all of it, unless the client is gone before: then nothing more is read."""
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
    """Import a file that was exported into a queue, which is made if it is not there, and into no other. All of it or nothing;
    what the queue had before is left as it is."""
    await call.client.queues()  # that there is such a namespace: a server makes none by the way
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
                            "A file here has at most 4 GiB: use `headrace state import`.",
                        ),
                        headers={"Connection": "close"},
                    )
                file.write(chunk)
        except ClientDisconnect:
            raise Refusal(400, "disconnected", "The body is not whole.") from None
        file.seek(0)
        done = await call.client.import_state(file, actor=call.actor)
    return answer(done)


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
