"""Queues: made, changed, looked at, paused, emptied."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.responses import Response

from headrace import statements
from headrace.arguments import MAX_ID, MAX_INT
from headrace.model import Stats
from headrace.server.operations import Call, InNamespace, Operation, Query, answer
from headrace.server.steps import Stepped, take_steps
from headrace.server.wire import Moment, moment_or_none, told

Words: TypeAlias = list[str]
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=100)]
Filter: TypeAlias = Annotated[Words, Meta(min_length=1, max_length=1000)]
Positive: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_INT)]
Retries: TypeAlias = Annotated[int, Meta(ge=0, le=32767)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=86400)]
Object: TypeAlias = dict[str, Any]
Id: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_ID)]


class QueueBody(msgspec.Struct, frozen=True, kw_only=True):
    """A queue: what it takes, how it does, its settings."""

    namespace: str
    name: str
    state: Literal["active", "paused", "draining"]
    takes: bool
    """False: it is switched off and gets nothing new."""
    types: Words | None
    tags: Words | None
    all_tags: bool
    depth: int
    """How many deliveries wait, counted to 10,000, or to the queue's limit if that is more."""
    filling: Literal["waiting", "running"] | None
    """It began in the past and has not got all of that yet."""
    max_retries: int
    backoff: Object
    max_queue_depth: int | None
    high_watermark: int | None
    batch_size: int | None
    processing_interval: float
    """Seconds between the polls of an idle node."""
    persistence_threshold: int | None
    """Its state is saved as soon as as many wait."""
    require_lease_token: bool
    """A claim is ended and extended only with its `lease_token`."""
    metadata: Object
    created_at: str


class QueueList(msgspec.Struct, frozen=True):
    """The queues of a namespace, by name."""

    queues: list[QueueBody]


class NewQueueBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A queue to make."""

    name: Name
    types: Filter | None = None
    """What it takes; a type may hold asterisks. Null is everything."""
    tags: Filter | None = None
    all_tags: bool = False
    since: Moment | None = None
    """Begin with what was published since then."""
    after: Id | None = None
    """Begin with what was published after this event; 0: with the first that is kept."""
    max_retries: Retries | None = None
    backoff: Object | None = None
    max_queue_depth: Positive | None = None
    high_watermark: Positive | None = None
    batch_size: Positive | None = None
    processing_interval: Seconds | None = None
    persistence_threshold: Positive | None = None
    require_lease_token: bool | None = None
    metadata: Object | None = None


class QueueChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings to change; null brings a default back, and what is not named stays as it is."""

    takes: bool | UnsetType | None = UNSET
    types: Filter | UnsetType | None = UNSET
    tags: Filter | UnsetType | None = UNSET
    all_tags: bool | UnsetType | None = UNSET
    max_retries: Retries | UnsetType | None = UNSET
    backoff: Object | UnsetType | None = UNSET
    max_queue_depth: Positive | UnsetType | None = UNSET
    high_watermark: Positive | UnsetType | None = UNSET
    batch_size: Positive | UnsetType | None = UNSET
    processing_interval: Seconds | UnsetType | None = UNSET
    persistence_threshold: Positive | UnsetType | None = UNSET
    require_lease_token: bool | UnsetType | None = UNSET
    metadata: Object | UnsetType | None = UNSET


class Deletion(Query, frozen=True, kw_only=True):
    with_deliveries: bool = False
    """Also if it has unfinished deliveries or dead letters, which are lost with it."""


async def list_queues(call: Call) -> Response:
    """The queues of a namespace, by name."""
    queues = await call.client.queues()
    return answer(QueueList([told(QueueBody, queue, namespace=call.namespace) for queue in queues]))


async def create_queue(call: Call) -> Response:
    """Make a queue that gets every event it takes, beside all other queues: 201, or 200 if it is there already and
    takes the same."""
    body: NewQueueBody = call.body
    settings = msgspec.structs.asdict(body)
    name = settings.pop("name")
    is_new = await call.client.create_queue(name, **settings, actor=call.actor)
    made = told(QueueBody, await call.client.queue(name), namespace=call.namespace)
    where = f"/queues/{quote(call.namespace, safe='')}/{quote(name, safe='')}"
    return answer(made, 201 if is_new else 200, {"Location": where})


async def show_queue(call: Call) -> Response:
    """One queue."""
    return answer(told(QueueBody, await call.client.queue(), namespace=call.namespace))


async def change_queue(call: Call) -> Response:
    """Change the settings of a queue that are named."""
    await call.client.change_queue(call.queue, actor=call.actor, **changes(call.body))
    return await show_queue(call)


async def delete_queue(call: Call) -> Response:
    """Delete a queue. `main` is not deleted but switched off, by `takes`."""
    query: Deletion = call.query
    await call.client.delete_queue(
        call.queue, with_deliveries=query.with_deliveries, actor=call.actor
    )
    return Response(status_code=204)


async def pause(call: Call) -> Response:
    """Pause a queue: events are still published into it, and nobody gets any of them."""
    await call.client.pause(actor=call.actor)
    return await show_queue(call)


async def resume(call: Call) -> Response:
    """Make a queue active again."""
    await call.client.resume(actor=call.actor)
    return await show_queue(call)


async def drain(call: Call) -> Response:
    """Have a queue take nothing new, work off what is there, and then be paused."""
    await call.client.drain(actor=call.actor)
    return await show_queue(call)


class Period(Query, frozen=True, kw_only=True):
    period: Annotated[float, Meta(ge=0, le=31 * 86400)] = 300
    """Seconds."""


class StatsBody(msgspec.Struct, frozen=True, kw_only=True):
    """What stands where in a queue, and what happened in the period."""

    ready: int
    delayed: int
    processing: int
    dead_letters: int
    oldest_ready_at: str | None
    published: int
    completed: int
    failed: int
    abandoned: int
    dead_lettered: int
    attempts: int
    average_ms: float | None
    is_exact: bool
    """False: more than 100,000 stand somewhere, and how many was estimated."""


async def stats(call: Call) -> Response:
    """What stands where in a queue, and what happened in it lately."""
    period: Period = call.query
    told: Stats = await call.client.stats(period.period)
    figures = msgspec.structs.asdict(told)
    figures["oldest_ready_at"] = moment_or_none(told.oldest_ready_at)
    return answer(StatsBody(**figures))


class Purge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to remove: all of it, or those of some types; dead letters also by id or kind of error."""

    what: Literal["ready", "delayed", "dead_letters"]
    ids: list[Id] | None = None
    types: Filter | None = None
    fingerprint: str | None = None
    reason: str = ""


async def purge(call: Call) -> Response:
    """Remove what waits in a queue, or its dead letters. What is in work stays. If it takes long, a part is done,
    and `more` says so: ask again."""
    body: Purge = call.body

    def step(last: statements.Step | None) -> statements.Statement[statements.Step]:
        return statements.purge(
            *(call.namespace, call.queue, body.what, body.ids, body.types, body.fingerprint),
            *(body.reason, call.actor, last),
        )

    return answer(await take_steps(call, step))


def changes(body: msgspec.Struct) -> dict[str, Any]:
    """What a body names."""
    named = msgspec.structs.asdict(body)
    return {name: value for name, value in named.items() if value is not UNSET}


_QUEUE = "/queues/{namespace}/{queue}"
OPERATIONS = (
    Operation("GET", "/queues", list_queues, "read", InNamespace, answers={200: QueueList}),
    Operation(
        *("POST", "/queues", create_queue, "admin", InNamespace),
        body=NewQueueBody,
        answers={201: QueueBody, 200: QueueBody},
    ),
    Operation("GET", _QUEUE, show_queue, "read", Query, answers={200: QueueBody}),
    Operation(
        *("PATCH", _QUEUE, change_queue, "admin", Query),
        body=QueueChange,
        answers={200: QueueBody},
    ),
    Operation("DELETE", _QUEUE, delete_queue, "admin", Deletion, answers={204: None}),
    Operation("POST", _QUEUE + "/pause", pause, "admin", Query, answers={200: QueueBody}),
    Operation("POST", _QUEUE + "/resume", resume, "admin", Query, answers={200: QueueBody}),
    Operation("POST", _QUEUE + "/drain", drain, "admin", Query, answers={200: QueueBody}),
    Operation("GET", _QUEUE + "/stats", stats, "read", Period, answers={200: StatsBody}),
    Operation(
        *("POST", _QUEUE + "/purge", purge, "admin", Query),
        body=Purge,
        body_limit=1024 * 1024,
        answers={200: Stepped},
    ),
)
