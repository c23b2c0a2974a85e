"""Queues: created, changed, shown, paused, purged."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Meta
from starlette.responses import Response

from headrace.engine import administer, statement
from headrace.model import LimitedGroup, Order, Queue, Stats
from headrace.server.api.values import (
    Filter,
    Id,
    Lease,
    Maybe,
    Moment,
    Name,
    Object,
    Positive,
    shape_of,
    told,
)
from headrace.server.http.operation import (
    Call,
    InNamespace,
    Operation,
    Query,
    Stepped,
    answer,
    take_steps,
)

Retries: TypeAlias = Annotated[int, Meta(ge=0, le=32767)]
Snoozes: TypeAlias = Annotated[int, Meta(ge=0, le=1000000)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=86400)]


class QueueBody(shape_of(Queue)):  # type: ignore[misc]
    """A queue: its filter, its state and its settings."""

    namespace: str
    processing_interval: float
    """Seconds between two polls of an idle node."""


class QueueList(msgspec.Struct, frozen=True):
    """The queues of a namespace, by name."""

    queues: list[QueueBody]


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Settings under the names that `GET /queues/{namespace}/{queue}/state` has for them."""

    maxQueueDepth: Positive | Maybe = UNSET
    batchSize: Positive | Maybe = UNSET
    processingInterval: Positive | Maybe = UNSET
    """Milliseconds."""
    persistenceThreshold: Positive | Maybe = UNSET
    highWatermark: Positive | Maybe = UNSET


class NewQueueBody(Config, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A queue to create. A setting that is left out has its default."""

    name: Name
    types: Filter | None = None
    """Types of the events that the queue takes; asterisks are wildcards. Null: all."""
    tags: Filter | None = None
    all_tags: bool = False
    since: Moment | None = None
    """Also take the events published since then."""
    after: Id | None = None
    """Also take the events published after this one; 0: all that are stored."""
    max_retries: Retries | None = None
    backoff: Object | None = None
    max_queue_depth: Positive | None = None
    high_watermark: Positive | None = None
    batch_size: Positive | None = None
    processing_interval: Seconds | None = None
    persistence_threshold: Positive | None = None
    require_lease_token: bool | None = None
    order: Order | None = None
    lease: Lease | None = None
    limits: list[Object] | None = None
    fair_by: Object | None = None
    aging: Seconds | None = None
    max_snoozes: Snoozes | None = None
    metadata: Object | None = None


class QueueChange(Config, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings to change. Null restores the default; a setting that is left out stays as it is."""

    takes: bool | Maybe = UNSET
    types: Filter | Maybe = UNSET
    tags: Filter | Maybe = UNSET
    all_tags: bool | Maybe = UNSET
    max_retries: Retries | Maybe = UNSET
    backoff: Object | Maybe = UNSET
    max_queue_depth: Positive | Maybe = UNSET
    high_watermark: Positive | Maybe = UNSET
    batch_size: Positive | Maybe = UNSET
    processing_interval: Seconds | Maybe = UNSET
    persistence_threshold: Positive | Maybe = UNSET
    require_lease_token: bool | Maybe = UNSET
    order: Order | Maybe = UNSET
    lease: Lease | Maybe = UNSET
    limits: list[Object] | Maybe = UNSET
    fair_by: Object | Maybe = UNSET
    aging: Seconds | Maybe = UNSET
    max_snoozes: Snoozes | Maybe = UNSET
    metadata: Object | Maybe = UNSET


class Deletion(Query, frozen=True, kw_only=True):
    with_deliveries: bool = False
    """Delete it although it has unfinished deliveries or dead letters, which are lost."""


async def list_queues(call: Call) -> Response:
    """The queues of a namespace, by name."""
    queues = await call.client.queues()
    return answer(QueueList([told(QueueBody, queue, namespace=call.namespace) for queue in queues]))


async def create_queue(call: Call) -> Response:
    """Create a queue, which gets a delivery of every event that matches its filter, as every other
    queue does. 201, or 200 if the queue exists with the same filter."""
    body: NewQueueBody = call.body
    settings = changes(body)
    name = settings.pop("name")
    config = {field: settings.pop(field) for field in Config.__struct_fields__ if field in settings}
    is_new = await call.client.create_queue(name, **settings, config=config, actor=call.actor)
    made = told(QueueBody, await call.client.queue(name), namespace=call.namespace)
    where = f"/queues/{quote(call.namespace, safe='')}/{quote(name, safe='')}"
    return answer(made, 201 if is_new else 200, {"Location": where})


async def show_queue(call: Call) -> Response:
    """One queue."""
    return answer(told(QueueBody, await call.client.queue(), namespace=call.namespace))


async def change_queue(call: Call) -> Response:
    """Change settings of a queue."""
    await call.client.change_queue(call.queue, actor=call.actor, **changes(call.body))
    call.services.directory.forget_settings(call.namespace, call.queue)
    return await show_queue(call)


async def delete_queue(call: Call) -> Response:
    """Delete a queue. `main` cannot be deleted: switch it off with `takes` instead."""
    query: Deletion = call.query
    await call.client.delete_queue(
        call.queue, with_deliveries=query.with_deliveries, actor=call.actor
    )
    call.services.directory.forget_settings(call.namespace, call.queue)
    return Response(status_code=204)


class LimitedGroupBody(shape_of(LimitedGroup)):  # type: ignore[misc]
    """A group of a queue that has a limit, and what it has in progress and waiting."""


class LimitedGroups(msgspec.Struct, frozen=True):
    """The groups with a limit that have something in progress or waiting, full ones first."""

    limits: list[LimitedGroupBody]


async def limits(call: Call) -> Response:
    """The groups of a queue that have a limit, and what they have in progress and waiting."""
    groups = await call.client.limits()
    return answer(LimitedGroups([told(LimitedGroupBody, group) for group in groups]))


async def pause(call: Call) -> Response:
    """Pause a queue: it still takes new events, and hands out none."""
    await call.client.pause(actor=call.actor)
    return await show_queue(call)


async def resume(call: Call) -> Response:
    """Make a queue active again."""
    await call.client.resume(actor=call.actor)
    return await show_queue(call)


async def drain(call: Call) -> Response:
    """Drain a queue: it takes no new events, hands out those it has, and is paused when empty."""
    await call.client.drain(actor=call.actor)
    return await show_queue(call)


class Period(Query, frozen=True, kw_only=True):
    period: Annotated[float, Meta(ge=0, le=31 * 86400)] = 300
    """Seconds."""


class StatsBody(shape_of(Stats)):  # type: ignore[misc]
    """The deliveries of a queue by state, and what happened in the period."""


async def stats(call: Call) -> Response:
    """The deliveries of a queue by state, and what happened in the last `period` seconds."""
    period: Period = call.query
    return answer(told(StatsBody, await call.client.stats(period.period)))


class Purge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The deliveries to remove: all, or by type; dead letters also by id or error group."""

    what: Literal["ready", "delayed", "dead_letters"]
    ids: list[Id] | None = None
    types: Filter | None = None
    fingerprint: str | None = None
    reason: str = ""


async def purge(call: Call) -> Response:
    """Remove waiting deliveries of a queue, or its dead letters. Deliveries in progress stay. If
    there are very many, some are removed and `more` is true: repeat the request."""
    body: Purge = call.body

    def step(last: administer.Step | None) -> statement.Statement[administer.Step]:
        return administer.purge(
            *(call.namespace, call.queue, body.what, body.ids, body.types, body.fingerprint),
            *(body.reason, call.actor, last),
        )

    return answer(await take_steps(call, step))


def changes(body: msgspec.Struct) -> dict[str, Any]:
    """The fields that a body has."""
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
    Operation("GET", _QUEUE + "/limits", limits, "read", Query, answers={200: LimitedGroups}),
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
