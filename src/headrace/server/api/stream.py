"""The live log: server-sent events that a client can resume, and that skip no entry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Annotated, NamedTuple

import msgspec
import psycopg
from msgspec import UNSET, Meta
from psycopg_pool import PoolTimeout
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.engine import cursors, log
from headrace.engine.log import LogWait
from headrace.errors import InvalidInput, NotFound
from headrace.model import Action, LogEntry
from headrace.model.patterns import matches
from headrace.server.api.shards import ShardsFollower, refuse
from headrace.server.api.values import Absent, known, moment, moment_or_none
from headrace.server.feed import (
    PAGE,
    PAUSE,
    SAID,
    Feed,
)
from headrace.server.http.operation import (
    Call,
    InNamespace,
    Operation,
    Patterns,
)
from headrace.server.http.refusal import NO_SNIFFING, Refusal, explain
from headrace.server.long_poll import until_gone

BEAT = 10.0  # seconds without an entry after which a follower gets a beat
ADMITTED = 5.0  # seconds after which the token of a follower is checked again
STREAMS = 1000  # at a time, of one server
RETRY = 1000  # milliseconds after which a disconnected client reconnects

_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", **NO_SNIFFING}


class Following(InNamespace, frozen=True, kw_only=True):
    queue: str | None = None
    """Only entries of this queue; published events are included all the same."""
    actions: tuple[Action, ...] | None = None
    """Only these actions."""
    types: Patterns | None = None
    """Only events of these types; asterisks are wildcards."""
    after: Annotated[str, Meta(pattern=cursors.ANY)] | None = None
    """Begin after this entry: a `Last-Event-ID` or a number, 0 for the beginning. Without it, and
    without a `Last-Event-ID`, the stream begins now."""


class Entry(msgspec.Struct, frozen=True):
    """An entry of the log."""

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
    """Follow the log of a namespace live, as server-sent events. A client that reconnects with the
    last `Last-Event-ID` it got misses no entry. If a standby was promoted or a backup restored in
    the meantime, an event `rewound` comes first, and entries after its number may be repeated.
    While an open transaction holds entries back, an event `waiting` says since when (`since`) and
    in which database process (`pid`). A client that does not read is disconnected, and may
    reconnect."""
    query: Following = call.query
    feeds, directory = call.services.feeds, call.services.directory
    call.services.bulkheads.check_streams(call.caller, call.namespace)
    if feeds.followers >= STREAMS:
        raise Refusal(
            *(
                503,
                "too_many_streams",
                f"The server has its maximum of {STREAMS:,} streams: try again later.",
            ),
            headers={"Retry-After": "10"},
        )
    if query.queue is not None:
        await call.client.queue(query.queue)  # raises if the queue does not exist
    if directory.over_shards:
        given = call.request.headers.get("last-event-id") or query.after
        try:
            return ShardsStream(call, await ShardsFollower.begin(call, given))
        except InvalidInput as error:
            raise refuse(error) from None
    now = await directory.ask(log.log_now(), lane="look")
    asked = _last_event_id(call.request.headers.get("last-event-id")) or query.after
    # Raises if there is no such log, or no such place in it.
    page = await call.client.log_since(
        now[0].partition(" ")[0] if asked is None else asked, limit=1
    )
    number = now[1] if asked is None else cursors.read(asked)[0]
    if page.rewound_to is not None:
        number = page.rewound_to
    return LogStream(call, Place(number, cursors.moved(page.cursor, number), page.rewound_to), now)


class Place(NamedTuple):
    """The position in the log at which a follower begins."""

    number: int
    cursor: str
    rewound_to: int | None


class LogStream(Response):
    """An answer that goes on until the client leaves, its token is revoked, or the server stops."""

    media_type = "text/event-stream"

    def __init__(self, call: Call, begin: Place, now: tuple[str, int]) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._call, self._begin, self._now = call, begin, now

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
            suppress(Refusal),  # another request of the same token or namespace was faster
            self._call.services.bulkheads.streaming(self._call.caller, self._call.namespace),
            suppress(NotFound),  # the namespace has been deleted, or a backup was restored
            self._call.services.feeds.following(self._call.namespace, self._now, news) as feed,
        ):
            async for chunk in Follower(self._call, feed, self._begin, news).chunks():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})


class ShardsStream(LogStream):
    """The log of all shards. Its `Last-Event-ID` has a place on each."""

    def __init__(self, call: Call, follower: ShardsFollower) -> None:
        super().__init__(call, Place(0, "", None), ("", 0))
        self._follower = follower

    async def _tell(self, send: Send) -> None:
        feeds = self._call.services.feeds
        with (
            suppress(Refusal),
            self._call.services.bulkheads.streaming(self._call.caller, self._call.namespace),
            suppress(NotFound),
            feeds.counted(),
        ):
            async for chunk in self._chunks():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def _chunks(self) -> AsyncIterator[bytes]:
        now = asyncio.get_running_loop().time
        is_chosen = _filter(self._call.query)
        yield b"retry: %d\n\n" % RETRY
        told_at = admitted_at = now()
        async for entries in self._follower.pages(self._call.services.stopping):
            cursor = self._follower.cursor.encode()
            if self._follower.rewound_to is not None:
                yield b'event: rewound\nid: %b\ndata: {"after":%d}\n\n' % (
                    cursor,
                    self._follower.rewound_to,
                )
            data = [b"data: %b\n\n" % _encode(_entry(one)) for one in entries if is_chosen(one)]
            if data or now() - told_at >= BEAT:
                # The place of a page is told with its last entry: a client that breaks off within
                # the page gets the page again.
                yield b"".join(data[:-1]) + b"id: %b\n" % cursor + (data or [b": beat\n\n"])[-1]
                told_at = now()
            if now() - admitted_at >= ADMITTED:
                if not await is_admitted(self._call):
                    return
                admitted_at = now()


class Follower:
    """A client that follows the log, and its position there."""

    def __init__(self, call: Call, feed: Feed, begin: Place, news: asyncio.Event) -> None:
        self._call = call
        self._feed = feed
        self._position, self._cursor, self._rewound_to = begin
        self._news = news
        self._mark: str | None = None
        self._is_over = False
        self._told_wait: LogWait | None = None
        self._is_chosen = _filter(call.query)

    async def chunks(self) -> AsyncIterator[bytes]:
        stopping = self._call.services.stopping
        now = asyncio.get_running_loop().time
        yield b"retry: %d\n\n" % RETRY
        if self._rewound_to is not None:
            said = (self._cursor.encode(), self._rewound_to)
            yield b'event: rewound\nid: %b\ndata: {"after":%d}\n\n' % said
        told_at = admitted_at = now()
        while not (stopping.is_set() or self._feed.over or self._is_over):
            self._news.clear()
            entries = await self._next()
            chunk = await self._written(entries) if entries else b""
            if chunk or now() - told_at >= BEAT:
                # An id without data dispatches no event, and the client reconnects from there.
                yield chunk or b"id: %b\n: beat\n\n" % self._cursor.encode()
                told_at = now()
            if self._feed.wait is not None and self._feed.wait is not self._told_wait:
                self._told_wait = self._feed.wait
                yield _waiting(self._feed.wait)
            if now() - admitted_at >= ADMITTED:
                if not await is_admitted(self._call):
                    return
                admitted_at = now()
            if not entries:
                await _first_of(self._news, stopping, seconds=self._patience)

    async def _written(self, entries: list[LogEntry]) -> bytes:
        async with self._feed.turn:
            chosen = [entry for entry in entries if self._is_chosen(entry)]
            chunk = b"".join([self._write(entry) for entry in chosen])
            await asyncio.sleep(0)
        return chunk

    def _write(self, entry: LogEntry) -> bytes:
        written = self._feed.written.get(entry.id)
        if written is None:
            written = _event(entry, self._cursor)
            if self._feed.begin < entry.id <= self._feed.after:
                self._feed.written[entry.id] = written
        return written

    @property
    def _patience(self) -> float:
        """Seconds after which to look again, even without news."""
        return PAUSE if self._position < self._feed.begin else min(BEAT, ADMITTED)

    async def _next(self) -> list[LogEntry]:
        entries = self._feed.since(self._position)
        if entries:
            self._mark, self._position = None, entries[-1].id
            self._cursor = cursors.moved(self._feed.cursor, self._position)
            return entries
        if entries is not None:
            if self._position <= self._feed.after:
                self._mark, self._position, self._cursor = None, self._feed.after, self._feed.cursor
            return entries
        try:
            page = await self._call.client.log_since(self._cursor, limit=PAGE, mark=self._mark)
        except (psycopg.Error, PoolTimeout):  # the database is away, and comes back
            return []
        if page.rewound_to is not None:
            self._is_over = True  # the client reconnects with its cursor, and gets `rewound`
            return []
        self._position, self._cursor, self._mark = page.read_to, page.cursor, page.mark
        return page.entries


async def is_admitted(call: Call) -> bool:
    """Whether the token is still valid. An error of the database does not count against it."""
    try:
        await call.services.gate.admit(call.request, call.operation, call.namespace)
    except Exception as error:
        refusal = explain(error)
        return refusal is not None and refusal.status in (503, 504)
    return True


def _last_event_id(text: str | None) -> str | None:
    if not text:
        return None
    try:
        cursors.read(text)
    except InvalidInput:
        raise Refusal(
            400, "invalid_last_event_id", "The Last-Event-ID is not one of this log: leave it out."
        ) from None
    return text


def _filter(query: Following) -> Callable[[LogEntry], bool]:
    def is_chosen(entry: LogEntry) -> bool:
        return (
            (query.actions is None or entry.action in query.actions)
            and (query.queue is None or entry.queue in (None, query.queue))
            and (query.types is None or any(matches(one, entry.type or "") for one in query.types))
        )

    return is_chosen


_encode = msgspec.json.Encoder().encode


def _entry(entry: LogEntry) -> Entry:
    error = entry.error_message
    return Entry(
        entry.id,
        entry.event_id,
        entry.action,
        known(entry.queue),
        known(entry.type),
        known(entry.worker_id),
        known(entry.attempt),
        known(entry.status_code),
        UNSET if error is None else error[:SAID],
        known(entry.execution_time_ms),
        moment(entry.created_at),
    )


def _event(entry: LogEntry, cursor: str) -> bytes:
    its_own = cursors.moved(cursor, entry.id).encode()
    return b"id: %b\ndata: %b\n\n" % (its_own, _encode(_entry(entry)))


def _waiting(wait: LogWait) -> bytes:
    """The reason why no entry comes. Only administrators should learn which transaction it is."""
    said = {"pid": wait.pid, "since": moment_or_none(wait.since)}
    return b"event: waiting\ndata: %b\n\n" % _encode(said)


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
        headers={"Last-Event-ID": "Continue after this entry."},
    ),
)
