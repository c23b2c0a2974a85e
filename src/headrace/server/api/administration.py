"""Nodes, workers, and the log of administration."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from headrace.engine.arguments import MAX_ID
from headrace.model import AdminAction, NodeInfo, Worker
from headrace.server.api.namespaces import not_allowed
from headrace.server.api.values import shape_of, told
from headrace.server.http.operation import (
    Call,
    InNamespace,
    InQueue,
    Limit,
    Operation,
    Query,
    answer,
)


class NodeBody(shape_of(NodeInfo)):  # type: ignore[misc]
    """A registered node."""


class NodeList(msgspec.Struct, frozen=True):
    """The nodes of a namespace, by id."""

    nodes: list[NodeBody]


async def list_nodes(call: Call) -> Response:
    """The registered nodes of a namespace, by id, and whether they are alive."""
    return answer(NodeList([told(NodeBody, node) for node in await call.client.nodes()]))


class Recently(InQueue, frozen=True, kw_only=True):
    period: Annotated[float, Meta(ge=0, le=31 * 86400)] = 300
    """Seconds."""


class WorkerBody(shape_of(Worker)):  # type: ignore[misc]
    """A worker that holds claims, or has ended an attempt lately."""


class WorkerList(msgspec.Struct, frozen=True):
    """The workers of a queue, by name."""

    workers: list[WorkerBody]


async def list_workers(call: Call) -> Response:
    """The workers of a queue that hold claims or ended attempts lately. Workers need not register:
    the list comes from leases and the log."""
    query: Recently = call.query
    workers = await call.client.workers(query.period)
    return answer(WorkerList([told(WorkerBody, worker) for worker in workers]))


class Administered(Query, frozen=True, kw_only=True):
    namespace: str | None = None
    """Default: all namespaces."""
    limit: Limit = 100
    before: Annotated[int, Meta(ge=0, le=MAX_ID)] | None = None
    """Only entries with lower ids: for the next page."""


class AdminActionBody(shape_of(AdminAction)):  # type: ignore[misc]
    """An administrative action, its object and its actor."""


class AdminLog(msgspec.Struct, frozen=True):
    """Administrative actions, the newest first."""

    entries: list[AdminActionBody]


async def admin_log(call: Call) -> Response:
    """Administrative actions, the newest first: of a namespace, or of all."""
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
