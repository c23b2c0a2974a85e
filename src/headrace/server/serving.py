"""Serving the application: a socket, connections that may neither dawdle nor overfill, an orderly end."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from headrace.errors import InvalidInput
from headrace.opening import sessions_last
from headrace.server.app import create_app
from headrace.server.delivery import DELIVERY, has_left, has_unread
from headrace.server.descriptors import watch_descriptors
from headrace.server.directory import open_directory
from headrace.server.limits import LIMITS, Limits
from headrace.server.operations import Services
from headrace.server.tokens import Access, open_gate
from headrace.server.upkeep import keep_up
from headrace.wakeup import Wakeups

HEAD_SECONDS = (
    10.0  # from a connection, or from its next request's first byte, to the end of the head
)
HEAD_BYTES = 64 * 1024
BODY_SECONDS = 10.0  # that a body may take, and for a long one besides:
BODY_RATE = 64 * 1024  # bytes a second
IDLE_SECONDS = 75.0  # between two requests; longer than the 60 s of most proxies
UNREAD_SECONDS = 15.0  # that a client may leave an answer unread
LINGER_SECONDS = (
    2.0  # for which we still take what a client sends that was answered before it was done
)
RESET_SECONDS = 2.0  # after an answer, in which a reset says that it was not read
CLOSED = Access()
GRACE_SECONDS = 10  # for requests under way, when the server is told to stop


class Connection(HttpToolsProtocol):
    """uvicorn's, with a limit to what a client may send before it has asked for something, and to how long it
    may take with that and with reading the answer."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._in_head = True
        self._head_bytes = 0
        self._body_bytes = 0
        self._idle_bytes = 0
        self._body_began = 0.0
        self._too_slow: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._is_over = False
        self._failing: _Transport | None = None
        """The last answer whose failure somebody wants to hear of."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._too_slow = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._failing is not None:
            self._failing.ended(was_reset=exc is not None, was_paused=self._unread is not None)
        self._calm()
        self.resume_writing()
        super().connection_lost(exc)

    def eof_received(self) -> None:
        # Here, since the socket is closed by the time the connection is lost.
        if self._failing is not None:
            self._failing.is_unread = has_unread(self.transport)
        super().eof_received()

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        if self._failing is not None and self._failing.is_written:
            self._failing = None  # a client that asks for more has read it
        if self._in_head:
            self._head_bytes += len(data)
        else:
            self._idle_bytes += len(data)
        super().data_received(data)
        self._set_clock(len(data))

    def _set_clock(self, received: int) -> None:
        if self._is_over:
            return
        if not self._in_head:
            self._body_bytes += received
            if self._idle_bytes > HEAD_BYTES:
                self._hang_up(431, "head_too_large", "What comes with the body is too large.")
            elif self._too_slow is None:
                self._body_began = self.loop.time()
                self._too_slow = self.loop.call_later(BODY_SECONDS, self._give_up_on_body)
        elif self._head_bytes > HEAD_BYTES:
            self._refuse(431, "head_too_large", "The head of the request is too large.")
        elif self._head_bytes and self._too_slow is None:
            self._too_slow = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def on_headers_complete(self) -> None:
        self._in_head, self._head_bytes = False, 0
        self._calm()
        super().on_headers_complete()
        transport = _Transport(self, self.cycle)
        self.cycle.transport = transport  # type: ignore[assignment]
        self.scope[DELIVERY] = transport  # type: ignore[literal-required]

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # what trails a body is of no use to anybody
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._idle_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_head, self._body_bytes, self._idle_bytes = True, 0, 0
        self._calm()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if not self._in_head:  # answered before it was read: the rest is not waited for
            self.finish()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self.loop.call_later(UNREAD_SECONDS, self.transport.abort)  # close waits for what is unread

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "invalid_request", "This is not a request of HTTP/1.1.")

    def _give_up(self) -> None:
        self._too_slow = None
        if self.cycle is not None and not self.cycle.response_complete:
            self._too_slow = self.loop.call_later(HEAD_SECONDS, self._give_up)
        elif self._head_bytes:
            self._refuse(408, "request_timeout", "The request came too slowly.")
        else:
            self.transport.close()

    def _give_up_on_body(self) -> None:
        left = self._body_began + BODY_SECONDS + self._body_bytes / BODY_RATE - self.loop.time()
        if left > 0:
            self._too_slow = self.loop.call_later(left, self._give_up_on_body)
        else:
            self._hang_up(408, "request_timeout", "The body came too slowly.")

    def _hang_up(self, status: int, code: str, sentence: str) -> None:
        """In the middle of a body; who has begun to answer it will close the connection."""
        if not self.cycle.response_started:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            self._refuse(status, code, sentence)

    def _calm(self) -> None:
        if self._too_slow is not None:
            self._too_slow.cancel()
            self._too_slow = None

    def _refuse(self, status: int, code: str, sentence: str) -> None:
        body = msgspec.json.encode({"error": sentence, "code": code})
        self.transport.write(
            STATUS_LINE[status]
            + b"content-type: application/json\r\nx-content-type-options: nosniff\r\n"
            + b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body)
            + body
        )
        self.finish()

    def finish(self) -> None:
        """Close the connection. If the client is still sending, to close it at once would cost it the answer: what
        comes is thrown away for a moment. And to see whether the client reads the answer takes a moment."""
        if self._in_head and not self._head_bytes and self._failing is None:
            self.transport.close()
        elif not self._is_over and not self.transport.is_closing():
            self._is_over = True
            self.flow.resume_reading()
            self.transport.write_eof()
            self.loop.call_later(LINGER_SECONDS, self.transport.abort)


class _Transport:
    """The transport as a request's answer uses it: head and body go in one piece, and it closes in our way, which
    nobody is left to find out for himself."""

    def __init__(self, connection: Connection, cycle: RequestResponseCycle) -> None:
        self._connection = connection
        self._cycle = cycle
        self._head: bytes | None = None
        self._is_first = True
        self._call: Callable[[], object] | None = None
        self._written_at = 0.0
        self.is_unread = False
        """The client has closed the connection, and did not have all of the answer then."""
        self.is_closing = connection.transport.is_closing

    @property
    def is_written(self) -> bool:
        return self._cycle.response_complete

    @property
    def is_hopeless(self) -> bool:
        return self._cycle.disconnected or has_left(self._connection.transport)

    def on_failure(self, call: Callable[[], object]) -> None:
        self._call = call
        self._connection._failing = self

    def ended(self, *, was_reset: bool, was_paused: bool) -> None:
        """The connection is lost."""
        call, self._call = self._call, None
        soon = self._connection.loop.time() - self._written_at < RESET_SECONDS
        if call is not None and (
            not self.is_written or self.is_unread or was_paused or (was_reset and soon)
        ):
            call()

    def write(self, data: bytes) -> None:
        if self._call is not None:
            self._written_at = self._connection.loop.time()
        if not self._cycle.response_started:  # 100 Continue
            self._connection.transport.write(data)
        elif self._is_first:
            self._is_first, self._head = False, self._ended(data)
            self._connection.loop.call_soon(self._flush)  # should the body take its time
        elif self._head is None:
            self._connection.transport.write(data)
        else:
            head, self._head = self._head, None
            self._connection.transport.write(head + data)

    def _ended(self, head: bytes) -> bytes:
        """The head of an answer; one that comes before the request was read is the connection's last."""
        if not (self._cycle.more_body and self._cycle.keep_alive):
            return head
        self._cycle.keep_alive = False
        return head.removesuffix(b"\r\n") + b"connection: close\r\n\r\n"

    def _flush(self) -> None:
        if self._head is not None:
            head, self._head = self._head, None
            self._connection.transport.write(head)

    def close(self) -> None:
        self._flush()
        self._connection.finish()


class Server(uvicorn.Server):
    """uvicorn's, which leaves signals to the program around it."""

    def __init__(self, services: Services, app: ASGIApp | None = None) -> None:
        super().__init__(
            uvicorn.Config(
                app or create_app(services),
                http=Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=2048,
                timeout_keep_alive=IDLE_SECONDS,  # type: ignore[arg-type]
                timeout_graceful_shutdown=GRACE_SECONDS,
            )
        )
        self.services = services
        self.directory = services.directory
        self.stopping = services.stopping
        self.notice = services.gate.notice

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        """Take no more connections, let waiting ones answer at once, and end when all is answered."""
        self.should_exit = True
        self.stopping.set()


@asynccontextmanager
async def open_server(
    dsn: str,
    *,
    host: str = "127.0.0.1",
    access: Access = CLOSED,
    limits: Limits = LIMITS,
    connections: int = 10,
    prepare: bool = True,
) -> AsyncIterator[Server]:
    """A server that has what it needs, and is not yet serving. `host` is where it listens. `prepare=False` is for a
    transaction pooler in between."""
    prepare = prepare and await asyncio.to_thread(sessions_last, dsn)
    async with (
        open_directory(dsn, connections=connections, prepare=prepare) as directory,
        Wakeups(dsn, prepare=prepare) as wakeups,
    ):
        gate = await open_gate(directory, host, access)
        yield Server(Services.over(directory, gate=gate, wakeups=wakeups, limits=limits))


async def serve(
    dsn: str, listening: socket.socket, *, started: Callable[[Server], object], **options: Any
) -> None:
    """Serve until somebody stops the server that `started` is given."""
    async with open_server(dsn, host=listening.getsockname()[0], **options) as server:
        started(server)
        beside = (keep_up(server.directory, server.stopping), watch_descriptors(server.stopping))
        tasks = [asyncio.create_task(one) for one in beside]
        await server.serve(sockets=[listening])
        server.stopping.set()
        await asyncio.gather(*tasks)


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections; port 0 is any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(2048)
    except OSError as error:
        listening.close()
        why = "it is in use" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
        raise InvalidInput(f"cannot listen on {host}:{port}: {why}") from error
    return listening
