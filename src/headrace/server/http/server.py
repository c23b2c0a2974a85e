"""The server: listens on a socket, serves the application, and stops in order."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from headrace.driver.connect import sessions_last, several
from headrace.driver.listen import Wakeups
from headrace.errors import InvalidInput
from headrace.server.clients import Directory, open_directory
from headrace.server.http.connection import IDLE_SECONDS, Connection
from headrace.server.http.descriptors import watch_descriptors
from headrace.server.http.gate import Access, open_gate
from headrace.server.http.operation import Services
from headrace.server.http.routing import create_app
from headrace.server.limits import LIMITS, Limits
from headrace.server.shards import open_shards
from headrace.server.upkeep import keep_all_up

CLOSED = Access()
GRACE_SECONDS = 10  # for pending requests, when the server is told to stop


class Server(uvicorn.Server):
    """The server of uvicorn, without its signal handlers: the program around it has its own."""

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
        """Take no more connections, answer long polls at once, and end when all requests are
        answered."""
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
    """A server with its connections, which does not serve yet. `host` is its address.
    `prepare=False` is for a transaction pooler. The DSNs of several shards are one a line."""
    shards = several(dsn, None)
    first = shards[0] if shards else dsn
    prepare = prepare and await asyncio.to_thread(sessions_last, first)
    async with AsyncExitStack() as stack:
        directory: Directory
        wakeups: Any
        if shards:
            opening = open_shards(shards, connections=connections, prepare=prepare)
            directory, wakeups = await stack.enter_async_context(opening)
        else:
            directory = await stack.enter_async_context(
                open_directory(dsn, connections=connections, prepare=prepare)
            )
            wakeups = await stack.enter_async_context(Wakeups(dsn, prepare=prepare))
        gate = await open_gate(directory, host, access)
        yield Server(Services.over(directory, gate=gate, wakeups=wakeups, limits=limits))


async def serve(
    dsn: str, listening: socket.socket, *, started: Callable[[Server], object], **options: Any
) -> None:
    """Serve until `Server.stop` is called; `started` gets the server."""
    async with open_server(dsn, host=listening.getsockname()[0], **options) as server:
        started(server)
        beside = (
            keep_all_up(server.directory, server.stopping),
            watch_descriptors(server.stopping),
        )
        tasks = [asyncio.create_task(one) for one in beside]
        await server.serve(sockets=[listening])
        server.stopping.set()
        await asyncio.gather(*tasks)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 is any free port."""
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
