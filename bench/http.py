"""A client over many connections that costs little: requests are bytes, answers are read and hardly looked at."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self, cast

Request = bytes
PROJECT = Path(__file__).parents[1]


def post(path: str, body: bytes) -> Request:
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


def get(path: str) -> Request:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


class Line(asyncio.Protocol):
    """A connection on which one request at a time is asked."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[bytes] | None = None
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not of this class

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found or len(body) < _length(head):
            return
        self._received = b""
        assert self._answer is not None
        if head.startswith(b"HTTP/1.1 2"):
            self._answer.set_result(body)
        else:
            self._answer.set_exception(RuntimeError(f"{head.decode()}\n{body.decode()}"))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError())

    async def ask(self, request: Request) -> bytes:
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()


def _length(head: bytes) -> int:
    _, found, after = head.lower().partition(b"content-length: ")
    return int(after.partition(b"\r\n")[0]) if found else 0


async def connect(port: int, lines: int) -> list[Line]:
    loop = asyncio.get_running_loop()
    return [(await loop.create_connection(Line, "127.0.0.1", port))[1] for _ in range(lines)]


async def ask_all(lines: list[Line], requests: Iterable[Request]) -> list[float]:
    """How long each took, in seconds; every line asks the next one as soon as it is free."""
    remaining = iter(requests)
    times: list[float] = []

    async def ask(line: Line) -> None:
        for request in remaining:
            began = time.perf_counter()
            await line.ask(request)
            times.append(time.perf_counter() - began)

    await asyncio.gather(*map(ask, lines))
    return times


async def cycle(
    lines: list[Line], first: Request, then: Callable[[bytes], Request], count: int
) -> list[float]:
    """How long each took that is two requests, of which the second is made from the answer to the first."""
    remaining = iter(range(count))
    times: list[float] = []

    async def ask(line: Line) -> None:
        for _ in remaining:
            began = time.perf_counter()
            await line.ask(then(await line.ask(first)))
            times.append(time.perf_counter() - began)

    await asyncio.gather(*map(ask, lines))
    return times


class Process:
    """A server in a process of its own, which says in its output where it listens."""

    def __init__(self, *command: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *command], cwd=PROJECT, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.port = 0
        for line in self._process.stdout:
            _, found, port = line.strip().rpartition("http://127.0.0.1:")
            if found:
                self.port = int(port)
                return
        raise RuntimeError("the server did not start")

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        self._process.terminate()
        self._process.communicate(timeout=30)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
