"""The application: finds the operation of a path and method, and calls it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import psycopg
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.driver.explain import NoConnection
from headrace.server.api import (
    administration,
    claims,
    dead_letters,
    events,
    health,
    metrics,
    namespaces,
    overview,
    queues,
    schedules,
    shards,
    states,
    stream,
)
from headrace.server.clients import LOOK_SECONDS
from headrace.server.http import openapi, pages
from headrace.server.http.operation import Call, Operation, Services
from headrace.server.http.origins import refuse_two_hosts
from headrace.server.http.refusal import Refusal, answer_error, refused
from headrace.server.http.request import (
    QuickRequest,
    read_body,
    read_query,
    refuse_body,
)

OPERATIONS: tuple[Operation, ...] = openapi.with_description(
    *stream.OPERATIONS,
    *claims.OPERATIONS,
    *events.OPERATIONS,
    *queues.OPERATIONS,
    *states.OPERATIONS,
    *namespaces.OPERATIONS,
    *schedules.OPERATIONS,
    *dead_letters.OPERATIONS,
    *administration.OPERATIONS,
    *overview.OPERATIONS,
    *shards.OPERATIONS,
    *metrics.OPERATIONS,
    *health.OPERATIONS,
    *pages.OPERATIONS,
)


def create_app(services: Services, operations: Iterable[Operation] = OPERATIONS) -> Application:
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, {})[operation.method] = operation
    return Application({path: Resource(path, its, services) for path, its in by_path.items()})


class Application:
    """Finds the resource of a path. A path without parameters comes before one with parameters,
    whatever their order."""

    def __init__(self, resources: Mapping[str, Resource]) -> None:
        self._plain = {path: its for path, its in resources.items() if "{" not in path}
        self._named: dict[tuple[str | None, ...], tuple[Resource, list[str]]] = {}
        places: defaultdict[int, set[tuple[int, ...]]] = defaultdict(set)
        for path in resources.keys() - self._plain.keys():
            parts = path.split("/")
            named = tuple(place for place, part in enumerate(parts) if part.startswith("{"))
            places[len(parts)].add(named)
            names = [parts[place][1:-1] for place in named]
            self._named[_without(parts, named)] = (resources[path], names)
        self._places = {size: sorted(named, key=len) for size, named in places.items()}
        """The positions of parameters in paths, by the number of their parts."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise NotImplementedError(f"the protocol {scope['type']} is not supported")
        try:
            refuse_two_hosts(scope)
            resource, scope["path_params"] = self._find(scope["path"])
        except Refusal as refusal:
            await refused(refusal)(scope, receive, send)
            return
        await resource(scope, receive, send)

    def _find(self, path: str) -> tuple[Resource, dict[str, str]]:
        plain = self._plain.get(path)
        if plain is not None:
            return plain, {}
        parts = path.split("/")
        for named in self._places.get(len(parts), ()):
            resource, names = self._named.get(_without(parts, named), (None, []))
            given = [parts[place] for place in named]
            if resource is not None and all(given):
                return resource, dict(zip(names, given, strict=True))
        raise Refusal(404, "not_found", f"The path {path[:200]} does not exist.")


def _without(parts: list[str], named: tuple[int, ...]) -> tuple[str | None, ...]:
    """The parts of a path with None at the positions of parameters."""
    return tuple([None if place in named else part for place, part in enumerate(parts)])


class Resource:
    """A path: an operation for each method."""

    def __init__(self, path: str, operations: dict[str, Operation], services: Services) -> None:
        self._path = path
        self._operations = dict(operations)
        if "GET" in operations and operations["GET"].is_safe:
            self._operations["HEAD"] = operations["GET"]
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = QuickRequest(scope, receive, send)
        began = time.perf_counter()
        try:
            response = await self._answer(request)
        except psycopg.errors.QueryCanceled as error:
            response = await answer_error(request, self._cut(request) or error)
        except (NoConnection, psycopg.errors.LockNotAvailable) as error:
            response = await answer_error(request, await self._services.directory.why(error))
        except Exception as error:
            response = await answer_error(request, error)
        missing = self._services.directory.missing
        if missing:
            said = "; ".join(missing).encode("latin-1", "replace")
            response.raw_headers.append((b"headrace-missing-shards", said))
        method = request.method if request.method in self._operations else "other"
        self._services.timings.observe(
            method, self._path, response.status_code, time.perf_counter() - began
        )
        await response(scope, receive, send)

    def _cut(self, request: Request) -> Refusal | None:
        """The answer to a query that took too long."""
        operation = self._operations.get(request.method)
        if operation is None or operation.lane != "look":
            return None
        return Refusal(
            422,
            "look_up_too_long",
            f"The query was cancelled after {LOOK_SECONDS} seconds: ask for less, with fewer "
            "types, a shorter time, or a smaller look_at.",
        )

    async def _answer(self, request: Request) -> Response:
        operation = self._operations.get(request.method)
        if operation is None:
            allowed = ", ".join(sorted(self._operations))
            raise Refusal(
                *(
                    405,
                    "method_not_allowed",
                    f"This path does not support the method: use {allowed}.",
                ),
                headers={"Allow": allowed},
            )
        query = read_query(request, operation.query)
        named = request.path_params
        namespace = named.get("namespace", getattr(query, "namespace", None))
        caller = await self._services.gate.admit(request, operation, namespace)
        if operation.scope is not None:
            self._services.bulkheads.enter(caller, namespace)
        body = await self._read_body(request, operation)
        call = Call(
            request,
            operation,
            query,
            body,
            "default" if namespace is None else namespace,
            named.get("queue", getattr(query, "queue", "main")),
            caller,
            self._services,
        )
        return await operation.handle(call)

    async def _read_body(self, request: Request, operation: Operation) -> Any:
        if operation.body is None:
            return None if operation.is_safe else await refuse_body(request, operation)
        if operation.streams_body:
            return None
        limit = operation.body_limit
        if operation.carries_payload:
            limit += await self._services.directory.max_payload()
        return await read_body(request, operation, limit, self._services.limits.events)
