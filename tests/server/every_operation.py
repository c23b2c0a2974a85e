"""Every operation of the server with a request that makes sense, where there is something of every kind.

In this order each of them succeeds, once, in the life that the engine's functions are called in, too.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from headrace.engine.transfer import Export, ExportedPart
from headrace.server.http.operation import Operation
from headrace.server.http.routing import OPERATIONS
from tests.engine.every_function import HEADER, Life

BY_NAME = {f"{one.method} {one.path}": one for one in OPERATIONS}


@dataclass(frozen=True)
class Request:
    """What is put into an operation beside the namespace."""

    named: dict[str, Any] = field(default_factory=dict)  # in the path
    query: dict[str, Any] = field(default_factory=dict)
    body: Any = None


def plainly(life: Life) -> Request:
    return Request()


def about(id: int, **body: Any) -> Request:
    return Request({"id": id}, body=body or None)


def work(claim: Any, **others: Any) -> Request:
    return about(claim.id, worker_id="a worker", attempt=claim.attempt, **others)


def in_queue(queue: str = "main", body: Any = None) -> Callable[[Life], Request]:
    return lambda life: Request({"queue": queue}, body=body)


def schedule(name: str = "a task", body: Any = None) -> Callable[[Life], Request]:
    return lambda life: Request({"name": name}, body=body)


_EXPORT = Export("here", "main", move=False)
EMPTY = _EXPORT.line(HEADER) + _EXPORT.line(ExportedPart("[]", 0, None, {}))
"""The file of a queue in which there is nothing."""

REQUESTS: dict[str, Callable[[Life], Request]] = {
    # looking
    "GET /events/stream": lambda life: Request(query={"after": 0}),
    "GET /events": lambda life: Request(query={"status": "PENDING", "tags": "*", "limit": 5}),
    "GET /events/{id}/why": lambda life: about(life.waiting),
    "GET /events/{id}": lambda life: about(life.waiting),
    "GET /queues": plainly,
    "GET /queues/{namespace}/{queue}": in_queue(),
    "GET /queues/{namespace}/{queue}/limits": in_queue(),
    "GET /queues/{namespace}/{queue}/stats": in_queue(),
    "GET /queues/{namespace}/{queue}/state": in_queue(),
    "GET /queues/{namespace}/{queue}/checkpoints": in_queue(),
    "GET /queues/{namespace}/{queue}/recoveries": in_queue(),
    "GET /queues/{namespace}/{queue}/export": in_queue(),
    "GET /namespaces/{namespace}": plainly,
    "GET /schedules": plainly,
    "GET /schedules/{name}": schedule(),
    "GET /dead-letters": plainly,
    "GET /dead-letters/groups": plainly,
    "GET /dead-letters/{id}": lambda life: about(life.dead),
    "GET /nodes": plainly,
    "GET /workers": plainly,
    "GET /admin-log": plainly,
    "GET /history": lambda life: Request(query={"range": "15m"}),
    "GET /attention": plainly,
    # work
    "POST /events": lambda life: Request(
        body={"type": "new", "tags": "a,b", "payload": {"n": [1, None]}, "priority": 3}
    ),
    "POST /events/batch": lambda life: Request(body={"events": [{"type": "new"}, {"delay": 5}]}),
    "GET /events/subscribe": lambda life: Request(query={"tags": "*", "worker_id": "another"}),
    "POST /events/claim": lambda life: Request(
        body={"worker_id": "another", "types": ["wait*"], "limit": 2}
    ),
    "POST /events/{id}/start": lambda life: work(life.held),
    "POST /events/{id}/heartbeat": lambda life: work(life.held, lease=90),
    "POST /events/{id}/complete": lambda life: work(life.held, execution_time_ms=5),
    "POST /events/{id}/fail": lambda life: work(life.batch[0], error_message="no"),
    "POST /events/{id}/release": lambda life: work(life.batch[1]),
    # administration
    "POST /events/{id}/reset": lambda life: about(life.batch[2].id),
    "POST /events/{id}/rerun": lambda life: about(life.done.id),
    "POST /events/{id}/cancel": lambda life: about(life.keyed.id),
    "POST /events/{id}/erase": lambda life: about(life.done.id),
    "POST /dead-letters/redrive": lambda life: Request(body={"ids": [life.dead]}),
    "POST /queues/{namespace}/{queue}/import": in_queue("imported", EMPTY),
    "POST /queues": lambda life: Request(body={"name": "new", "types": ["new"], "after": 0}),
    "PATCH /queues/{namespace}/{queue}": in_queue("other", {"max_retries": 9}),
    "POST /queues/{namespace}/{queue}/pause": in_queue(),
    "POST /queues/{namespace}/{queue}/resume": in_queue(),
    "POST /queues/{namespace}/{queue}/drain": in_queue("other"),
    "POST /queues/{namespace}/{queue}/purge": in_queue("main", {"what": "delayed"}),
    "POST /queues/{namespace}/{queue}/checkpoint": in_queue(),
    "POST /queues/{namespace}/{queue}/export": in_queue("paused"),
    "DELETE /queues/{namespace}/{queue}": in_queue("paused"),
    "POST /schedules": lambda life: Request(
        body={"name": "new", "cron_expression": "0 0 1 1 *", "payload": {"a": 1}}
    ),
    "PATCH /schedules/{name}": schedule(body={"cron_expression": "0 0 1 2 *"}),
    "POST /schedules/{name}/pause": schedule(),
    "POST /schedules/{name}/resume": schedule(),
    "POST /schedules/{name}/run": schedule(),
    "DELETE /schedules/{name}": schedule(),
    "PATCH /namespaces/{namespace}": lambda life: Request(body={"unhandled": "dead_letter"}),
    "DELETE /namespaces/{namespace}": lambda life: Request(query={"with_deliveries": "true"}),
}
# Those that are about no namespace, or about all of them.
REQUESTS_OF_ALL: dict[str, Callable[[Life], Request]] = {
    "GET /shards": plainly,
    "GET /namespaces": plainly,
    "POST /namespaces": lambda life: Request(body={"name": f"{life.namespace}-new"}),
    "GET /whoami": plainly,
    "GET /metrics": plainly,
    "GET /healthz": plainly,
    "GET /readyz": plainly,
    "GET /": plainly,
    "GET /dashboard/{edition}/{file}": lambda life: Request({"edition": "1", "file": "main.js"}),
    "GET /dashboard/{edition}/{folder}/{file}": lambda life: Request(
        {"edition": "1", "folder": "views", "file": "queue.js"}
    ),
    "GET /openapi.json": plainly,
    "GET /docs": plainly,
    "GET /docs/docs.js": plainly,
    "GET /docs/docs.css": plainly,
}


@dataclass(frozen=True)
class Prepared:
    """A request as it is sent."""

    method: str
    target: str  # path and query
    content: bytes | None

    def raw(self, *, chunked: bool = False) -> bytes:
        """All of its bytes."""
        lines, content = [f"{self.method} {self.target} HTTP/1.1", "Host: localhost"], b""
        if self.content is not None:
            size = len(self.content)
            length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {size}"
            lines += ["Content-Type: application/json", length]
            content = b"%x\r\n%b\r\n0\r\n\r\n" % (size, self.content) if chunked else self.content
        return "\r\n".join([*lines, "", ""]).encode() + content


def prepared(name: str, life: Life, namespace: str | None = None) -> Prepared:
    """An operation's request in a life, or with its things in another namespace."""
    operation = BY_NAME[name]
    asked = {**REQUESTS, **REQUESTS_OF_ALL}[name](life)
    named, query = dict(asked.named), dict(asked.query)
    if name in REQUESTS:
        place = named if "{namespace}" in operation.path else query
        place["namespace"] = namespace or life.namespace
    path = operation.path.format(
        **{key: quote(str(value), safe="") for key, value in named.items()}
    )
    return Prepared(
        operation.method,
        f"{path}?{urlencode(query)}" if query else path,
        asked.body
        if asked.body is None or isinstance(asked.body, bytes)
        else json.dumps(asked.body).encode(),
    )


def operation(name: str) -> Operation:
    return BY_NAME[name]
