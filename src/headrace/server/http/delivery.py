"""Whether an answer reached its client, as far as the kernel knows."""

from __future__ import annotations

import asyncio
import fcntl
import select
import struct
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

DELIVERY = "headrace.delivery"
"""In the scope of a request: its ReplyDelivery."""

_GONE = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR


class ReplyDelivery(Protocol):
    """The answer to one request on its way."""

    @property
    def is_hopeless(self) -> bool:
        """Whether the client has left by now, though the event loop may not have heard of it."""

    def body(self) -> bytes | None:
        """The whole body of the request, if it is here."""

    def answer(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> bool:
        """Write the answer; False: it cannot be written at once."""

    def on_failure(self, call: Callable[[], object]) -> None:
        """Call this once if the client leaves before it can have read the answer."""


def has_left(transport: asyncio.Transport) -> bool:
    """Whether the other end has closed the connection, at least for writing."""
    return transport.is_closing() or bool(_poll(transport, _GONE))


def has_unread(transport: asyncio.Transport) -> bool:
    """Whether the other end closed the connection before it had all bytes: some are unsent, or not
    acknowledged, or were answered with a reset."""
    if transport.get_write_buffer_size() or _poll(transport, select.POLLERR):
        return True
    with suppress(OSError, ValueError):
        pending = fcntl.ioctl(_descriptor(transport), termios.TIOCOUTQ, b"\0" * 4)
        return bool(struct.unpack("i", pending)[0])
    return False


def _poll(transport: asyncio.Transport, events: int) -> int:
    looking = select.poll()
    with suppress(OSError, ValueError):
        looking.register(_descriptor(transport), events)
        for _, found in looking.poll(0):
            return found & events
    return 0


def _descriptor(transport: asyncio.Transport) -> int:
    found: int = transport.get_extra_info("socket").fileno()
    return found
