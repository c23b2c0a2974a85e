"""The log as it happens: server-sent events that can be resumed and skip nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Annotated, Any

import msgspec
import psycopg
from msgspec import UNSET, Meta
from psycopg_pool import PoolTimeout
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace import statements
from headrace.arguments import MAX_ID
from headrace.errors import NotFound
from headrace.model import Action, LogEntry
from headrace.patterns import matches
from headrace.server.failures import Refusal, explain
from headrace.server.following import PAGE, PAUSE, SAID, Feed
from headrace.server.operations import Call, InNamespace, Operation
from headrace.server.waiting import until_gone
from headrace.server.wire import Absent, moment

BEAT = 10.0  # seconds after which somebody who was told nothing is told that all is well
ADMITTED = 5.0  # seconds after which it is looked again whether somebody may still listen
STREAMS = 1000  # at a time, of one server
RETRY = 1000  # milliseconds after which a client that was cut off comes again

_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class Following(InNamespace, frozen=True, kw_only=True):
    queue: str | None = None
    """Only what happens in this queue; what is published is told all the same."""
    actions: tuple[Action, ...] | None = None
    """Only these."""
    types: Annotated[tuple[str, ...], Meta(max_length=100)] | None = None
    """Only of events of these types; one may hold asterisks."""
    after: Annotated[int, Meta(ge=0, le=MAX_ID)] | None = None
    """Begin after this entry, 0 being before the first; without it, and without a `Last-Event-ID`, with what happens
    from now on."""


class Entry(msgspec.Struct, frozen=True):
    """One thing that happened."""

    id: int
    event_id: int
    action: str
    queue: str | Absent
    type: str | Absent
    worker_id: str | Absent
    attempt: int | Absent
    status_code: int | Absent
    error_message: str | Absent
    execution_time_ms: int | Absent
    created_at: str


async def follow_log(call: Call) -> Response:
    """The log of a namespace as it happens, as server-sent events. Whoever comes back with the `Last-Event-ID` that he has
    got last misses nothing. Who does not read is cut off, and may come back."""
    query: Following = call.query
    feeds, directory = call.services.feeds, call.services.directory
    if feeds.followers >= STREAMS:
        raise Refusal(
            *(503, "too_many_streams", "Too many follow the log here: try again later."),
            headers={"Retry-After": "10"},
        )
    end = await directory.ask(statements.log_end())
    last = _last_event_id(call.request.headers.get("last-event-id"))
    asked = query.after if last is None else last
    begin = end if asked is None else asked
    await call.client.log_since(begin, limit=1)  # that there is such a log
    return LogStream(call, begin, end)


class LogStream(Response):
    """An answer that goes on until the client is gone, or may not be told any more, or the server stops."""

    media_type = "text/event-stream"

    def __init__(self, call: Call, begin: int, end: int) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._call, self._begin, self._end = call, begin, end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        if scope["method"] != "HEAD":
            telling = asyncio.ensure_future(self._tell(send))
            gone = asyncio.ensure_future(until_gone(receive))
            try:
                await asyncio.wait({telling, gone}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                gone.cancel()
                telling.cancel()
                with suppress(asyncio.CancelledError):
                    await telling
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _tell(self, send: Send) -> None:
        news = asyncio.Event()
        with (
            suppress(NotFound),  # the namespace has been deleted
            self._call.services.feeds.following(self._call.namespace, self._end, news) as feed,
        ):
            async for chunk in Follower(self._call, feed, self._begin, news).chunks():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})


class Follower:
    """One who is told the log, up to where he is."""

    def __init__(self, call: Call, feed: Feed, position: int, news: asyncio.Event) -> None:
        self._call = call
        self._feed = feed
        self._position = position
        self._news = news
        self._mark: str | None = None
        self._is_chosen = _filter(call.query)

    async def chunks(self) -> AsyncIterator[bytes]:
        stopping = self._call.services.stopping
        now = asyncio.get_running_loop().time
        yield b"retry: %d\n\n" % RETRY
        told_at = admitted_at = now()
        while not stopping.is_set() and not self._feed.over:
            self._news.clear()
            entries = await self._next()
            chunk = b"".join([_event(entry) for entry in entries if self._is_chosen(entry)])
            if chunk or now() - told_at >= BEAT:
                # A number without data dispatches nothing, and is where a client comes back to.
                yield chunk or b"id: %d\n: beat\n\n" % self._position
                told_at = now()
            if now() - admitted_at >= ADMITTED:
                if not await self._is_admitted():
                    return
                admitted_at = now()
            if not entries:
                await _first_of(self._news, stopping, seconds=self._patience)

    @property
    def _patience(self) -> float:
        """Seconds after which to look again, though there be no news."""
        return PAUSE if self._position < self._feed.begin else min(BEAT, ADMITTED)

    async def _next(self) -> list[LogEntry]:
        entries = self._feed.since(self._position)
        if entries is not None:
            self._position = max(self._position, entries[-1].id if entries else self._feed.after)
            return entries
        try:
            page = await self._call.client.log_since(self._position, limit=PAGE, mark=self._mark)
        except (psycopg.Error, PoolTimeout):  # it is away, and comes back
            self._mark = None
            return []
        self._position, self._mark = page.after, page.mark
        return page.entries

    async def _is_admitted(self) -> bool:
        """Whoever was revoked meanwhile is told no more."""
        call = self._call
        try:
            await call.services.gate.admit(call.request, call.operation, call.namespace)
        except Exception as error:
            refusal = explain(error)
            return refusal is not None and refusal.status == 503
        return True


def _last_event_id(text: str | None) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= MAX_ID):
        raise Refusal(400, "invalid_last_event_id", "The Last-Event-ID is none of this log.")
    return int(text)


def _filter(query: Following) -> Callable[[LogEntry], bool]:
    def is_chosen(entry: LogEntry) -> bool:
        return (
            (query.actions is None or entry.action in query.actions)
            and (query.queue is None or entry.queue in (None, query.queue))
            and (query.types is None or any(matches(one, entry.type or "") for one in query.types))
        )

    return is_chosen


_encode = msgspec.json.Encoder().encode


def _event(entry: LogEntry) -> bytes:
    error = entry.error_message
    told = Entry(
        entry.id,
        entry.event_id,
        entry.action,
        _given(entry.queue),
        _given(entry.type),
        _given(entry.worker_id),
        _given(entry.attempt),
        _given(entry.status_code),
        UNSET if error is None else error[:SAID],
        _given(entry.execution_time_ms),
        moment(entry.created_at),
    )
    return b"id: %d\ndata: %b\n\n" % (entry.id, _encode(told))


def _given(value: Any) -> Any:
    return UNSET if value is None else value


async def _first_of(*events: asyncio.Event, seconds: float) -> None:
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()


OPERATIONS = (
    Operation(
        "GET",
        "/events/stream",
        follow_log,
        "read",
        Following,
        answers={200: str},
        produces="text/event-stream",
        headers={"Last-Event-ID": "Go on after this entry."},
    ),
)
