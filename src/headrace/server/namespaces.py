"""Namespaces: made, changed, looked at, deleted."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.responses import Response

from headrace.errors import NamespaceNotFound
from headrace.server.failures import Refusal
from headrace.server.operations import Call, Operation, Query, answer
from headrace.server.queues import Deletion, Name, Object, changes
from headrace.server.tokens import quoted
from headrace.server.wire import told


class NamespaceBody(msgspec.Struct, frozen=True):
    """A namespace and its settings."""

    name: str
    unhandled: Literal["keep", "dead_letter"]
    """What becomes of events that no node handles."""
    metadata: Object
    queues: int
    """How many it has."""
    created_at: str
    unhandled_after: float
    """Seconds for which nobody must have handled events, before they are dead-lettered."""


class NamespaceList(msgspec.Struct, frozen=True):
    """The namespaces, by name."""

    namespaces: list[NamespaceBody]


class NewNamespace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A namespace to make."""

    name: Name
    metadata: Object | None = None


class NamespaceChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings to change; null brings a default back, and what is not named stays as it is."""

    unhandled: Literal["keep", "dead_letter"] | UnsetType | None = UNSET
    unhandled_after: Annotated[float, Meta(ge=0, le=31 * 86400)] | UnsetType | None = UNSET
    """Seconds."""
    metadata: Object | UnsetType | None = UNSET


async def list_namespaces(call: Call) -> Response:
    """The namespaces that the caller may know of, by name."""
    return answer(NamespaceList(await _namespaces(call)))


async def create_namespace(call: Call) -> Response:
    """Make a namespace with its queue `main`: 201, or 200 if it is there."""
    body: NewNamespace = call.body
    if not call.caller.may_see(body.name):
        raise not_allowed()
    is_new = await call.client.create_namespace(body.name, metadata=body.metadata, actor=call.actor)
    headers = {"Location": f"/namespaces/{quote(body.name, safe='')}"}
    return answer(await _namespace(call, body.name), 201 if is_new else 200, headers)


async def show_namespace(call: Call) -> Response:
    """One namespace."""
    return answer(await _namespace(call, call.namespace))


async def change_namespace(call: Call) -> Response:
    """Change the settings of a namespace that are named."""
    await call.client.change_namespace(call.namespace, actor=call.actor, **changes(call.body))
    return await show_namespace(call)


async def delete_namespace(call: Call) -> Response:
    """Delete a namespace with its queues, its events and its log."""
    query: Deletion = call.query
    await call.client.delete_namespace(
        call.namespace, with_deliveries=query.with_deliveries, actor=call.actor
    )
    return Response(status_code=204)


async def _namespaces(call: Call) -> list[NamespaceBody]:
    return [
        told(NamespaceBody, one)
        for one in await call.client.namespaces()
        if call.caller.may_see(one.name)
    ]


async def _namespace(call: Call, name: str) -> NamespaceBody:
    for one in await _namespaces(call):
        if one.name == name:
            return one
    raise NamespaceNotFound(f"there is no namespace {quoted(name)}")


def not_allowed() -> Refusal:
    return Refusal(
        403,
        "namespace_not_allowed",
        "The token is limited to namespaces, and this is none of them.",
    )


_NAMESPACE = "/namespaces/{namespace}"
OPERATIONS = (
    Operation("GET", "/namespaces", list_namespaces, "read", Query, answers={200: NamespaceList}),
    Operation(
        *("POST", "/namespaces", create_namespace, "admin", Query),
        body=NewNamespace,
        answers={201: NamespaceBody, 200: NamespaceBody},
    ),
    Operation("GET", _NAMESPACE, show_namespace, "read", Query, answers={200: NamespaceBody}),
    Operation(
        *("PATCH", _NAMESPACE, change_namespace, "admin", Query),
        body=NamespaceChange,
        answers={200: NamespaceBody},
    ),
    Operation("DELETE", _NAMESPACE, delete_namespace, "admin", Deletion, answers={204: None}),
)
