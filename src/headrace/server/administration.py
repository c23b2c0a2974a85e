"""Who works, and who administered what."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from headrace.arguments import MAX_ID
from headrace.server.namespaces import not_allowed
from headrace.server.operations import Call, InNamespace, InQueue, Limit, Operation, Query, answer
from headrace.server.queues import Object, Words
from headrace.server.wire import told


class NodeBody(msgspec.Struct, frozen=True, kw_only=True):
    """A node that has registered."""

    node_id: str
    alive: bool
    """It has not stopped, its last heartbeat is younger than 90 seconds, and its connection is not seen to be gone."""
    display_name: str | None
    description: str | None
    metadata: Object
    handles: Words
    worker_id: str
    """The name its claims have."""
    instance: str
    registered_at: str
    """When its id was first registered."""
    started_at: str
    """When its current process registered."""
    last_heartbeat: str
    stopped_at: str | None


class NodeList(msgspec.Struct, frozen=True):
    """The nodes of a namespace, by id."""

    nodes: list[NodeBody]


async def list_nodes(call: Call) -> Response:
    """The nodes of a namespace that have registered, by id, and whether they are alive."""
    return answer(NodeList([told(NodeBody, node) for node in await call.client.nodes()]))


class Recently(InQueue, frozen=True, kw_only=True):
    period: Annotated[float, Meta(ge=0, le=31 * 86400)] = 300
    """Seconds."""


class WorkerBody(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who has claims, or has ended an attempt lately."""

    worker_id: str
    holds: int
    oldest_claim_at: str | None
    lease_expires_at: str | None
    """The first of its leases to end."""
    last_seen_at: str | None
    """Its last claim or end; a heartbeat leaves no trace."""
    completed: int
    failed: int
    released: int
    abandoned: int
    since: str
    """What was counted happened since then."""


class WorkerList(msgspec.Struct, frozen=True):
    """The workers of a queue, by name."""

    workers: list[WorkerBody]


async def list_workers(call: Call) -> Response:
    """Who has claims in a queue or ended attempts lately. Nobody registers: it is what leases and log say."""
    query: Recently = call.query
    workers = await call.client.workers(query.period)
    return answer(WorkerList([told(WorkerBody, worker) for worker in workers]))


class Administered(Query, frozen=True, kw_only=True):
    namespace: str | None = None
    """Without one: everywhere."""
    limit: Limit = 100
    before: Annotated[int, Meta(ge=0, le=MAX_ID)] | None = None
    """Only entries with lower ids, to page on."""


class AdminActionBody(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was done on purpose, and by whom."""

    id: int
    created_at: str
    namespace: str | None
    """Null: it concerned the whole installation, or the namespace has been deleted."""
    actor: str
    action: str
    target: str | None
    """What it was done to: a queue, a schedule, an event …"""
    details: Object


class AdminLog(msgspec.Struct, frozen=True):
    """What was done on purpose, the newest first."""

    entries: list[AdminActionBody]


async def admin_log(call: Call) -> Response:
    """What was done on purpose and by whom, the newest first: in a namespace, or everywhere."""
    query: Administered = call.query
    if query.namespace is None and call.caller.namespaces is not None:
        raise not_allowed()
    entries = await call.client.admin_log(
        everywhere=query.namespace is None, limit=query.limit, before=query.before
    )
    return answer(AdminLog([told(AdminActionBody, entry) for entry in entries]))


OPERATIONS = (
    Operation("GET", "/nodes", list_nodes, "read", InNamespace, answers={200: NodeList}),
    Operation("GET", "/workers", list_workers, "read", Recently, answers={200: WorkerList}),
    Operation(*("GET", "/admin-log", admin_log, "admin", Administered), answers={200: AdminLog}),
)
