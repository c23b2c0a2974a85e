"""Namespaces: created, changed, shown, deleted."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Meta
from starlette.responses import Response

from headrace.errors import NamespaceNotFound
from headrace.model import Namespace
from headrace.server.api.queues import Deletion, changes
from headrace.server.api.values import Maybe, Name, Object, shape_of, told
from headrace.server.http.gate import quoted
from headrace.server.http.operation import Call, Operation, Query, answer
from headrace.server.http.refusal import Refusal


class NamespaceBody(shape_of(Namespace)):  # type: ignore[misc]
    """A namespace and its settings."""

    unhandled_after: float
    """Seconds that events must be without a handler before they become dead letters."""


class NamespaceList(msgspec.Struct, frozen=True):
    """The namespaces, by name."""

    namespaces: list[NamespaceBody]


class NewNamespace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A namespace to create."""

    name: Name
    metadata: Object | None = None


class NamespaceChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings to change. Null restores the default; a setting that is left out stays as it is."""

    unhandled: Literal["keep", "dead_letter"] | Maybe = UNSET
    unhandled_after: Annotated[float, Meta(ge=0, le=31 * 86400)] | Maybe = UNSET
    """Seconds."""
    metadata: Object | Maybe = UNSET


async def list_namespaces(call: Call) -> Response:
    """The namespaces that the token may see, by name."""
    return answer(NamespaceList(await _namespaces(call)))


async def create_namespace(call: Call) -> Response:
    """Create a namespace with its queue `main`: 201, or 200 if it exists."""
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
    """Change settings of a namespace."""
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
        "The token does not allow this namespace: use a token that does.",
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
