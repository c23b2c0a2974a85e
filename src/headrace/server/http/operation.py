"""An operation of the API as a value: its method, path, scope, query, body and answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Protocol, TypeAlias
from urllib.parse import urlencode

import msgspec
import psycopg
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from headrace.async_client import AsyncEventQueue
from headrace.engine.administer import Step
from headrace.engine.statement import Statement
from headrace.errors import EventNotFound, HeadraceError
from headrace.server.bulkheads import Bulkheads
from headrace.server.clients import Directory, Lane
from headrace.server.feed import Feeds
from headrace.server.figures import Timings, Watcher
from headrace.server.http.delivery import DELIVERY, ReplyDelivery
from headrace.server.limits import LIMITS, Limits
from headrace.server.long_poll import NoWakeups, Waiting, Wakeups

Scope: TypeAlias = Literal["publish", "consume", "read", "admin", "any"]
"""The scope that a token needs; any: every valid token will do."""

SCOPES = frozenset({"publish", "consume", "read", "admin"})
STEP_SECONDS = 10.0  # that a request which changes very many deliveries may take


class Query(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters of a URL; a field that is a tuple is a list with commas there."""


class InNamespace(Query, frozen=True, kw_only=True):
    namespace: str = "default"


class InQueue(InNamespace, frozen=True, kw_only=True):
    queue: str = "main"


Patterns: TypeAlias = Annotated[tuple[str, ...], Meta(max_length=100)]
"""Patterns of types or tags; the database searches for each of them."""
Limit: TypeAlias = Annotated[int, Meta(ge=1, le=1000)]
"""How many items a list has in one answer."""


@dataclass(frozen=True)
class Operation:
    """One method of one path."""

    method: Literal["GET", "POST", "PATCH", "DELETE"]
    path: str
    handle: Callable[[Call], Awaitable[Response]]
    scope: Scope | None
    """The scope that a token needs; None: no token is needed."""
    query: type[Query] = InQueue
    body: Any = None
    """The type of the body; None: no body."""
    body_limit: int = 64 * 1024
    carries_payload: bool = False
    """The body may be longer than its limit by the maximum size of a payload."""
    reads: Any = None
    """The type that a body is decoded to first, where `handle` decodes the rest."""
    is_batch: bool = False
    """The body is a list of events, which has a limit (see Limits)."""
    media_types: tuple[str, ...] = ("application/json",)
    """Of a body; only application/json is decoded before `handle` gets it."""
    streams_body: bool = False
    """`handle` reads the body itself, as it arrives."""
    answers: Mapping[int, Any] = field(default_factory=dict)
    """The types of the answers, by status; None for an answer without a body."""
    produces: str = "application/json"
    """The media type of its answers."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of a request that the operation reads, with their descriptions."""
    hidden: bool = False
    """It is left out of /openapi.json."""

    @property
    def name(self) -> str:
        return self.handle.__name__

    @property
    def lane(self) -> Lane:
        return "look" if self.scope in ("read", "any") else "work"

    @property
    def is_safe(self) -> bool:
        """Whether the operation changes nothing, so that HEAD is allowed, too."""
        return self.method == "GET" and self.scope != "consume"


@dataclass(frozen=True)
class AdmittedClient:
    """A client that was let in."""

    name: str
    """In the log of administration."""
    namespaces: frozenset[str] | None = None
    """The namespaces that it may see; None: all."""
    scopes: frozenset[str] = SCOPES
    is_anybody: bool = True
    """It came without a token, and the server requires none."""

    def may_see(self, namespace: str) -> bool:
        return self.namespaces is None or namespace in self.namespaces


class Gate(Protocol):
    """Decides which requests are let in."""

    @property
    def notice(self) -> str | None:
        """A message for the user who starts the server."""

    async def admit(
        self, request: Request, operation: Operation, namespace: str | None
    ) -> AdmittedClient:
        """Raises a Refusal if the request is not allowed. A namespace of None: the operation is
        about all of them."""


class OpenGate:
    """Lets every request in."""

    notice = None

    async def admit(
        self, request: Request, operation: Operation, namespace: str | None
    ) -> AdmittedClient:
        return AdmittedClient("http")


@dataclass(frozen=True)
class Services:
    """The objects that operations share."""

    directory: Directory
    waiting: Waiting
    gate: Gate
    timings: Timings
    watcher: Watcher
    feeds: Feeds
    limits: Limits
    bulkheads: Bulkheads
    stopping: asyncio.Event
    """Set when the server is told to stop: long polls answer at once."""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def later(self, what: Callable[[], Awaitable[None]]) -> None:
        """Start a task that no request waits for. If it fails, the lease expires instead."""

        async def run() -> None:
            with suppress(psycopg.Error, HeadraceError):
                await what()

        task = asyncio.create_task(run())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    @classmethod
    def over(
        cls,
        directory: Directory,
        *,
        gate: Gate | None = None,
        wakeups: Wakeups | None = None,
        limits: Limits = LIMITS,
    ) -> Services:
        stopping = asyncio.Event()
        waiting = Waiting(wakeups or NoWakeups(), stopping)
        return cls(
            directory,
            waiting,
            gate or OpenGate(),
            Timings(),
            Watcher(directory),
            Feeds(directory),
            limits,
            Bulkheads(limits),
            stopping,
        )


class Call(msgspec.Struct, frozen=True):
    """A request that was let in and decoded."""

    request: Request
    operation: Operation
    query: Any
    body: Any
    namespace: str
    queue: str
    caller: AdmittedClient
    services: Services

    @property
    def actor(self) -> str:
        return self.caller.name

    @property
    def client(self) -> AsyncEventQueue:
        return self.services.directory.of(self.namespace, self.queue, lane=self.operation.lane)

    @property
    def event_id(self) -> int:
        """The id of the event in the path."""
        text = self.request.path_params["id"]
        if not (text.isascii() and text.isdigit() and text[0] != "0" and len(text) < 20):
            raise EventNotFound(f"there is no event {text[:40]!r}")
        return int(text)


def location(call: Call, path: str) -> dict[str, str]:
    """The header with the address of an object that a call has created."""
    named = {"namespace": (call.namespace, "default"), "queue": (call.queue, "main")}
    query = urlencode({name: given for name, (given, usual) in named.items() if given != usual})
    return {"Location": f"{path}?{query}" if query else path}


class Answer(Response):
    """An answer in JSON, with the headers that all of them have."""

    body: bytes

    def __init__(self, content: bytes, status: int, headers: Mapping[str, str]) -> None:
        # The constructor of Starlette, which serves all kinds of answers, takes as long as all of
        # this.
        self.status_code = status
        self.body = content
        self.background = None
        self.raw_headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(content)),
            (b"x-content-type-options", b"nosniff"),
            *[(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()],
        ]

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        delivery: ReplyDelivery | None = scope.get(DELIVERY)
        if delivery is None or not delivery.answer(self.status_code, self.raw_headers, self.body):
            await super().__call__(scope, receive, send)


NO_STORE = {"Cache-Control": "no-store"}


def answer(value: Any, status: int = 200, headers: Mapping[str, str] = NO_STORE) -> Response:
    return Answer(_encode(value), status, headers)


_encode = msgspec.json.Encoder().encode


class Stepped(msgspec.Struct, frozen=True):
    """How many deliveries were changed, and whether there are more: then repeat the request."""

    deliveries: int
    more: bool


async def take_steps(call: Call, step: Callable[[Step | None], Statement[Step]]) -> Stepped:
    """Change very many deliveries in steps, each committed on its own, for as long as a client
    should wait."""
    now = asyncio.get_running_loop().time
    until = now() + STEP_SECONDS
    done = 0
    for part in call.services.directory.parts:
        last = await part.ask(step(None))
        while last.more and now() < until and not call.services.stopping.is_set():
            last = await part.ask(step(last))
        done += last.done
        if last.more:
            return Stepped(done, True)
    return Stepped(done, False)
