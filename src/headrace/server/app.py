"""The application: which operation is at which path. What an operation does is not said here."""

from __future__ import annotations

import time
from collections.abc import Iterable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from headrace.server import administration, claims, events, health, metrics, queues, stream
from headrace.server.failures import Refusal, answer_error, answer_http
from headrace.server.operations import Call, Operation, Services
from headrace.server.requests import read_body, read_query

OPERATIONS: tuple[Operation, ...] = (
    *stream.OPERATIONS,
    *claims.OPERATIONS,
    *events.OPERATIONS,
    *queues.OPERATIONS,
    *administration.OPERATIONS,
    *metrics.OPERATIONS,
    *health.OPERATIONS,
)


def create_app(services: Services, operations: Iterable[Operation] = OPERATIONS) -> Starlette:
    """Paths match in their order, so those that are words come before those with a name in them."""
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, {})[operation.method] = operation
    app = Starlette(
        routes=[Route(path, Resource(path, its, services)) for path, its in by_path.items()],
        exception_handlers={HTTPException: answer_http},
    )
    app.router.redirect_slashes = False
    return app


class Resource:
    """What is at a path: an operation for each method."""

    def __init__(self, path: str, operations: dict[str, Operation], services: Services) -> None:
        self._path = path
        self._operations = dict(operations)
        if "GET" in operations and operations["GET"].is_safe:
            self._operations["HEAD"] = operations["GET"]
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        began = time.perf_counter()
        try:
            response = await self._answer(request)
        except Exception as error:
            response = await answer_error(request, error)
        method = request.method if request.method in self._operations else "other"
        self._services.timings.observe(
            method, self._path, response.status_code, time.perf_counter() - began
        )
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        operation = self._operations.get(request.method)
        if operation is None:
            allowed = ", ".join(sorted(self._operations))
            raise Refusal(
                405, "method_not_allowed", f"Here is {allowed} only.", headers={"Allow": allowed}
            )
        query = read_query(request, operation.query)
        named = request.path_params
        namespace = named.get("namespace", getattr(query, "namespace", None))
        caller = await self._services.gate.admit(request, operation, namespace)
        body = None if operation.body is None else await read_body(request, operation)
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
