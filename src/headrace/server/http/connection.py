"""A connection: with limits for slow and for large requests; each answer is one write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import (
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from headrace.server.http.delivery import DELIVERY, has_left, has_unread

# From the start of a connection, or the first byte of its next request, to the end of the head.
HEAD_SECONDS = 10.0
HEAD_BYTES = 64 * 1024
BODY_SECONDS = 10.0  # that a body may take; a long one has more time, at:
BODY_RATE = 64 * 1024  # bytes a second
IDLE_SECONDS = 75.0  # between two requests; longer than the 60 s of most proxies
UNREAD_SECONDS = 15.0  # that a client may leave an answer unread
# For which the server still reads what a client sends that got its answer before it was done.
LINGER_SECONDS = 2.0
RESET_SECONDS = 2.0  # after an answer, in which a reset says that it was not read
# Bodies and answers go straight between connection and operation where both are in one piece, not
# as messages of ASGI. Tests switch it off: all answers are the same then.
DIRECT = True


class Connection(HttpToolsProtocol):
    """The protocol of uvicorn, with limits: how large a request head may be, how long a client may
    take to send a request and to read the answer."""

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
        self.failing: Transport | None = None
        """The last answer with a callback for its failure."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._too_slow = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.failing is not None:
            self.failing.ended(was_reset=exc is not None, was_paused=self._unread is not None)
        self._calm()
        self.resume_writing()
        super().connection_lost(exc)

    def eof_received(self) -> None:
        # Here, since the socket is closed by the time the connection is lost.
        if self.failing is not None:
            self.failing.is_unread = has_unread(self.transport)
        super().eof_received()

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        if self.failing is not None and self.failing.is_written:
            self.failing = None  # a client that asks for more has read it
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
                self._hang_up(
                    431,
                    "head_too_large",
                    "The chunk headers or trailers of the body are too large: send fewer bytes.",
                )
            elif self._too_slow is None:
                self._body_began = self.loop.time()
                self._too_slow = self.loop.call_later(BODY_SECONDS, self._give_up_on_body)
        elif self._head_bytes > HEAD_BYTES:
            self._refuse(
                431,
                "head_too_large",
                f"The head of the request has more than {HEAD_BYTES:,} bytes: send a smaller one.",
            )
        elif self._head_bytes and self._too_slow is None:
            self._too_slow = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def on_headers_complete(self) -> None:
        self._in_head, self._head_bytes = False, 0
        self._calm()
        super().on_headers_complete()
        transport = Transport(self, self.cycle)
        self.cycle.transport = transport  # type: ignore[assignment]
        self.scope[DELIVERY] = transport  # type: ignore[literal-required]

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # trailers are ignored
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._idle_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_head, self._body_bytes, self._idle_bytes = True, 0, 0
        self._calm()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if not self._in_head:  # answered before all of it was read: do not wait for the rest
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
        self._refuse(400, "invalid_request", "The bytes received are not a valid HTTP/1.1 request.")

    def _give_up(self) -> None:
        self._too_slow = None
        if self.cycle is not None and not self.cycle.response_complete:
            self._too_slow = self.loop.call_later(HEAD_SECONDS, self._give_up)
        elif self._head_bytes:
            self._refuse(
                408,
                "request_timeout",
                f"The request head took longer than {HEAD_SECONDS:g} seconds: send it again.",
            )
        else:
            self.transport.close()

    def _give_up_on_body(self) -> None:
        left = self._body_began + BODY_SECONDS + self._body_bytes / BODY_RATE - self.loop.time()
        if left > 0:
            self._too_slow = self.loop.call_later(left, self._give_up_on_body)
        else:
            self._hang_up(
                408, "request_timeout", "The body of the request arrived too slowly: send it again."
            )

    def _hang_up(self, status: int, code: str, sentence: str) -> None:
        """In the middle of a body. If an answer has begun, its end closes the connection."""
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
        """Close the connection. Closing it at once, while the client is still sending, would cost
        the client its answer: so the rest is read and dropped for a moment. Seeing whether the
        client reads the answer takes a moment, too."""
        if self._in_head and not self._head_bytes and self.failing is None:
            self.transport.close()
        elif not self._is_over and not self.transport.is_closing():
            self._is_over = True
            self.flow.resume_reading()
            self.transport.write_eof()
            self.loop.call_later(LINGER_SECONDS, self.transport.abort)


class Transport:
    """The transport for the answer to a request: it writes head and body together, closes as
    Connection.finish does, and reports an answer that the client did not read."""

    def __init__(self, connection: Connection, cycle: RequestResponseCycle) -> None:
        self._connection = connection
        self._cycle = cycle
        self._head: bytes | None = None
        self._is_first = True
        self._call: Callable[[], object] | None = None
        self._written_at = 0.0
        self.is_unread = False
        """The client closed the connection before it had all of the answer."""
        self.is_closing = connection.transport.is_closing

    @property
    def is_written(self) -> bool:
        return self._cycle.response_complete

    @property
    def is_hopeless(self) -> bool:
        return self._cycle.disconnected or has_left(self._connection.transport)

    def body(self) -> bytes | None:
        """The body of the request, if all of it is here; None: ASGI is to bring it."""
        cycle = self._cycle
        if not DIRECT or cycle.more_body or cycle.disconnected or cycle.waiting_for_100_continue:
            return None
        self._connection.flow.resume_reading()
        cycle.message_event.clear()
        body, cycle.body = bytes(cycle.body), bytearray()
        return body

    def answer(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> bool:
        """Write a whole answer. False: nothing is written, and ASGI is to bring it, which waits for
        a slow client, refuses an invalid header, and copes with an unread request."""
        cycle, connection = self._cycle, self._connection
        is_plain = DIRECT and not (cycle.more_body or cycle.disconnected or cycle.response_started)
        if not is_plain or connection.flow.write_paused or cycle.scope["method"] == "HEAD":
            return False
        if HEADER_VALUE_RE.search(b"".join([value for _, value in headers])):
            return False
        cycle.response_started = cycle.response_complete = True
        lines = [b"%b: %b\r\n" % header for header in (*cycle.default_headers, *headers)]
        if not cycle.keep_alive:
            lines.append(b"connection: close\r\n")
        if self._call is not None:
            self._written_at = connection.loop.time()
        connection.transport.write(b"%b%b\r\n%b" % (STATUS_LINE[status], b"".join(lines), body))
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.close()
        cycle.on_response()
        return True

    def on_failure(self, call: Callable[[], object]) -> None:
        self._call = call
        self._connection.failing = self

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
            self._connection.loop.call_soon(self._flush)  # in case the body takes long
        elif self._head is None:
            self._connection.transport.write(data)
        else:
            head, self._head = self._head, None
            self._connection.transport.write(head + data)

    def _ended(self, head: bytes) -> bytes:
        """The head of an answer. An answer that comes before all of the request was read is the
        last one of its connection."""
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
