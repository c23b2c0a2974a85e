"""`headrace serve` and what `headrace up` is made of: the server, in this thread or beside something else."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from headrace.cli.signals import on_signals
from headrace.cli.source import Source
from headrace.errors import HeadraceError, InvalidInput

if TYPE_CHECKING:
    from headrace.server.serving import Server

PORT = 8080
MISSING = "The server needs a few more packages: pip install 'headrace[server]'"


@dataclass(frozen=True)
class Address:
    """Where to listen, and what for."""

    host: str = "127.0.0.1"
    port: int | None = None
    """None: the usual one, or any that is free."""
    connections: int = 10
    prepare: bool = True
    open: bool = False
    open_until_token: bool = False
    """So is `up`, on an address of this machine alone."""
    token_file: Path | None = None
    hosts: tuple[str, ...] = ()
    limits: Mapping[str, Any] = field(default_factory=dict)
    """Those that are not the usual ones, by their names in Limits."""


def run(where: Source, address: Address, seconds: float | None, *, greeting: str) -> None:
    """Serve until a signal comes, or the time is up."""
    listening = _listen(address)
    running: list[tuple[asyncio.AbstractEventLoop, Server]] = []

    def told() -> None:
        if not running:
            raise KeyboardInterrupt
        [(loop, server)] = running
        with suppress(RuntimeError):  # it has just ended
            loop.call_soon_threadsafe(_stop, server)

    def started(server: Server) -> None:
        loop = asyncio.get_running_loop()
        running.append((loop, server))
        if seconds is not None:
            loop.call_later(seconds, server.stop)
        greet(where, listening, greeting)
        if server.notice:
            typer.echo(f"  {server.notice}")
        typer.echo("Ctrl-C stops it.")

    # Not the loop's own handlers: with these the next signal would kill the process between the end
    # of the loop and the end of an embedded PostgreSQL.
    with listening, on_signals(told):
        _serve(where, listening, address, started)
    typer.echo("Stopped.")


@contextmanager
def beside(where: Source, address: Address) -> Iterator[str]:
    """Serve in a thread of its own for as long as something else lasts; gives the URL, and says what `run` would."""
    listening = _listen(address)
    servers: list[tuple[asyncio.AbstractEventLoop, Server]] = []
    ready = threading.Event()
    failures: list[BaseException] = []
    over = threading.Event()

    def started(server: Server) -> None:
        servers.append((asyncio.get_running_loop(), server))
        if over.is_set():  # it was told to stop before it could be
            server.stop()
        ready.set()

    def serve() -> None:
        try:
            _serve(where, listening, address, started)
        except BaseException as error:
            failures.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=serve, name="headrace server")
    thread.start()
    try:
        ready.wait()
        if failures:
            raise failures[0]
        for _, server in servers:
            if server.notice:
                typer.echo(server.notice)
        yield _url(listening)
    finally:
        over.set()
        for loop, server in servers:
            with suppress(RuntimeError):  # it has just ended
                loop.call_soon_threadsafe(server.stop)
        thread.join()
        listening.close()


def greet(where: Source, listening: socket.socket, greeting: str) -> None:
    """Where it is, and what to try next in another terminal."""
    typer.echo(f"{greeting}: {where.name}")
    typer.echo(f"  The dashboard and the API: {_url(listening)}")
    if where.embedded:  # an address of yours may hold a password
        typer.echo(f"  export HEADRACE_DSN='{where.dsn}'")
    typer.echo("  headrace publish order.created '{\"order\": 42}'")


def _serve(
    where: Source, listening: socket.socket, address: Address, started: Callable[[Server], object]
) -> None:
    from headrace.server.limits import Limits
    from headrace.server.serving import serve
    from headrace.server.tokens import Access

    access = Access(
        address.open, address.open_until_token, _first_token(address.token_file), address.hosts
    )
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(
            serve(
                where.dsn,
                listening,
                started=started,
                connections=address.connections,
                prepare=address.prepare,
                access=access,
                limits=Limits(**address.limits),
            )
        )


def _first_token(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get("HEADRACE_TOKEN") or None
    try:
        return file.read_text("utf-8", "replace").strip()
    except OSError as error:
        raise InvalidInput(
            f"the token cannot be read from {file}: {error.strerror or error}"
        ) from None


def _stop(server: Server) -> None:
    """The second signal does not wait for requests under way."""
    server.force_exit = server.should_exit
    server.stop()


def _listen(address: Address) -> socket.socket:
    listen = _server_package()
    if address.port is not None:
        return listen(address.host, address.port)
    try:
        return listen(address.host, PORT)
    except InvalidInput:
        return listen(address.host, 0)


def _server_package() -> Callable[[str, int], socket.socket]:
    try:
        from headrace.server.serving import listen
    except ImportError as error:
        if (error.name or "").startswith("headrace"):
            raise
        raise HeadraceError(MISSING) from error
    return listen


def _url(listening: socket.socket) -> str:
    host, port, *_ = listening.getsockname()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _loop_factory() -> Any:
    """uvloop's, which is twice as fast, where there is one."""
    if sys.platform == "win32":
        return None
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
