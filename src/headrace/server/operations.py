"""What an endpoint is: a value that says how it is asked, who may ask, what it answers; and what it is given."""

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

from headrace.async_client import AsyncEventQueue
from headrace.errors import EventNotFound, HeadraceError
from headrace.server.bulkheads import Bulkheads
from headrace.server.directory import Directory, Lane
from headrace.server.following import Feeds
from headrace.server.gathering import Gathering
from headrace.server.limits import LIMITS, Limits
from headrace.server.waiting import NoWakeups, Waiting, Wakeups
from headrace.server.watching import Timings, Watcher

Scope: TypeAlias = Literal["publish", "consume", "read", "admin", "any"]
"""What a token must allow; any: whatever it allows, it must be a good one."""

SCOPES = frozenset({"publish", "consume", "read", "admin"})


class Query(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters in an address; a field that is a tuple is a list with commas there."""


class InNamespace(Query, frozen=True, kw_only=True):
    namespace: str = "default"


class InQueue(InNamespace, frozen=True, kw_only=True):
    queue: str = "main"


Patterns: TypeAlias = Annotated[tuple[str, ...], Meta(max_length=100)]
"""Of types, or tags: each is looked for by itself."""
Limit: TypeAlias = Annotated[int, Meta(ge=1, le=1000)]
"""How many of a list are told at once."""


@dataclass(frozen=True)
class Operation:
    """One method of one path."""

    method: Literal["GET", "POST", "PATCH", "DELETE"]
    path: str
    handle: Callable[[Call], Awaitable[Response]]
    scope: Scope | None
    """What a token must allow; None: nobody is asked for one."""
    query: type[Query] = InQueue
    body: Any = None
    """The type of the body; None: it has none."""
    body_limit: int = 64 * 1024
    carries_payload: bool = False
    """It may have as many bytes more as a payload may have here."""
    reads: Any = None
    """The type that a body is decoded as at first, where `handle` does the rest."""
    is_batch: bool = False
    """It has events, of which a request may have so many (see Limits)."""
    media_types: tuple[str, ...] = ("application/json",)
    """Of a body; one that is not JSON's own is given to `handle` undecoded."""
    streams_body: bool = False
    """`handle` reads the body by itself, as it comes."""
    answers: Mapping[int, Any] = field(default_factory=dict)
    """What it answers with, by status; None for an answer without a body."""
    produces: str = "application/json"
    """The media type of its answers."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Of a request, that mean something here, and what."""
    hidden: bool = False
    """It is not described to anybody."""

    @property
    def name(self) -> str:
        return self.handle.__name__

    @property
    def lane(self) -> Lane:
        return "look" if self.scope in ("read", "any") else "work"

    @property
    def is_safe(self) -> bool:
        """Whether to ask changes nothing, so that HEAD may ask, too."""
        return self.method == "GET" and self.scope != "consume"


@dataclass(frozen=True)
class Caller:
    """Somebody who was let in."""

    name: str
    """In the log."""
    namespaces: frozenset[str] | None = None
    """Those he may know of; None: all."""
    scopes: frozenset[str] = SCOPES
    is_anybody: bool = True
    """He came in without a token, as everybody does here."""

    def may_see(self, namespace: str) -> bool:
        return self.namespaces is None or namespace in self.namespaces


class Gate(Protocol):
    """Decides who comes in."""

    @property
    def notice(self) -> str | None:
        """What whoever starts the server should know."""

    async def admit(self, request: Request, operation: Operation, namespace: str | None) -> Caller:
        """Raises a Refusal for who may not. A namespace of None: the operation is about all of them."""


class OpenGate:
    """Everybody is let in."""

    notice = None

    async def admit(self, request: Request, operation: Operation, namespace: str | None) -> Caller:
        return Caller("http")


@dataclass(frozen=True)
class Services:
    """What the endpoints work with."""

    directory: Directory
    gathering: Gathering
    waiting: Waiting
    gate: Gate
    timings: Timings
    watcher: Watcher
    feeds: Feeds
    limits: Limits
    bulkheads: Bulkheads
    stopping: asyncio.Event
    """Set as soon as the server is told to stop: who waits answers now."""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def later(self, what: Callable[[], Awaitable[None]]) -> None:
        """Do something that no request waits for. If it fails, the end of a lease has to do."""

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
            Gathering(directory),
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
    """A request that was let in, read and understood."""

    request: Request
    operation: Operation
    query: Any
    body: Any
    namespace: str
    queue: str
    caller: Caller
    services: Services

    @property
    def actor(self) -> str:
        return self.caller.name

    @property
    def client(self) -> AsyncEventQueue:
        return self.services.directory.of(self.namespace, self.queue, lane=self.operation.lane)

    @property
    def event_id(self) -> int:
        """The event that the path names."""
        text = self.request.path_params["id"]
        if not (text.isascii() and text.isdigit() and text[0] != "0" and len(text) < 20):
            raise EventNotFound(f"there is no event {text[:40]!r}")
        return int(text)


def location(call: Call, path: str) -> dict[str, str]:
    """The header that says where something is that a call has made."""
    named = {"namespace": (call.namespace, "default"), "queue": (call.queue, "main")}
    query = urlencode({name: given for name, (given, usual) in named.items() if given != usual})
    return {"Location": f"{path}?{query}" if query else path}


class Answer(Response):
    """JSON, with the headers that all of it has."""

    def __init__(self, content: bytes, status: int, headers: Mapping[str, str]) -> None:
        # What Starlette does for all kinds of answers takes as long as to make this one.
        self.status_code = status
        self.body = content
        self.background = None
        self.raw_headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(content)),
            (b"x-content-type-options", b"nosniff"),
            *[(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()],
        ]


NO_STORE = {"Cache-Control": "no-store"}


def answer(value: Any, status: int = 200, headers: Mapping[str, str] = NO_STORE) -> Response:
    return Answer(_encode(value), status, headers)


_encode = msgspec.json.Encoder().encode
