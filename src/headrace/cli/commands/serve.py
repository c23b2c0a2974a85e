"""`headrace serve`: the HTTP server, in this thread or beside the demo of `headrace up`."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.source import InDatabase, Source
from headrace.cli.terminal import options, times
from headrace.cli.terminal.command import command
from headrace.cli.terminal.signals import on_signals
from headrace.errors import HeadraceError, InvalidInput

if TYPE_CHECKING:  # --help and completion need none of them
    import asyncio

    from headrace.server.http.server import Server
    from headrace.server.limits import Limits

PORT = 8080
MISSING = "The server needs a few more packages: pip install 'headrace[server]'"

Host = Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")]
Port = Annotated[
    int | None,
    typer.Option(
        metavar="PORT",
        help="Port to listen on, 0 for any free one; default: 8080, or a free one if that is taken.",
        show_default=False,
        min=0,
        max=65535,
    ),
]
Connections = Annotated[
    int, typer.Option(metavar="NUMBER", help="Maximum number of connections to PostgreSQL.", min=4)
]
Seconds = Annotated[
    float | None,
    typer.Option("--for", metavar="SECONDS", help="Stop after this many seconds."),
]
Open = Annotated[
    bool,
    typer.Option("--open", help="Require no token: every client is an administrator."),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File with the first administrator token; default: HEADRACE_TOKEN. "
        "It is created only if no token was ever created.",
    ),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Host name that clients may use, as behind a proxy; * allows any. Repeat for several.",
    ),
]
MaxEvents = Annotated[
    int | None,
    typer.Option(
        metavar="NUMBER",
        help="Maximum number of events that a request may publish.",
        show_default="10000",
        min=1,
    ),
]
Requests = Annotated[
    int | None,
    typer.Option(
        "--requests",
        metavar="NUMBER",
        help="Rate limit of a token or namespace (requests per second); 0 for none.",
        show_default="1000",
        min=0,
    ),
]
Streams = Annotated[
    int | None,
    typer.Option(
        "--streams",
        metavar="NUMBER",
        help="Maximum number of streams that a token or namespace may follow at once.",
        show_default="100",
        min=1,
    ),
]
Lease = Annotated[
    timedelta | None,
    typer.Option(
        "--lease",
        parser=times.lease,
        metavar="TIME",
        envvar="HEADRACE_LEASE",
        show_envvar=False,
        help="Lease of a claim if neither the claim nor its queue sets one: 10m; "
        "default: HEADRACE_LEASE.",
        show_default="60s",
    ),
]


@dataclass(frozen=True)
class Options:
    """The options of a server; `headrace up` has some of them."""

    host: Host = "127.0.0.1"
    port: Port = None
    connections: Connections = 10
    pooler: options.Pooler = False
    seconds: Seconds = None
    open: Open = False
    token_file: TokenFile = None
    allow_host: AllowHost = None
    max_events: MaxEvents = None
    requests: Requests = None
    streams: Streams = None
    lease: Lease = None

    def limits(self) -> Limits:
        from headrace.server.limits import Limits

        given: dict[str, Any] = {
            "events": self.max_events,
            "requests": self.requests,
            "streams": self.streams,
            "lease": None if self.lease is None else self.lease.total_seconds(),
        }
        return Limits(**{name: one for name, one in given.items() if one is not None})


@command(
    examples="""
    headrace serve
    headrace serve --open
    headrace serve --host 0.0.0.0 --port 8080 --connections 20
    headrace serve --dsn postgresql://a/shop --dsn postgresql://b/shop
    """,
)
def serve(*, options: Options, where: InDatabase) -> None:
    """Serve the HTTP API of a migrated database, or of all shards that are named. Ctrl-C, SIGTERM
    or SIGHUP stops it."""
    several = where.shards()
    if several:
        run(all_shards(several), options, greeting="Headrace serves")
        return
    with where.prepared() as source:
        run(source, options, greeting="Headrace serves")


def all_shards(dsns: list[str], *, embedded: bool = False) -> Source:
    """Several shards as the server takes them."""
    from headrace.driver.servers import name_of

    name = f"{len(dsns)} shards: {', '.join(map(name_of, dsns))}"
    return Source("\n".join(dsns), name, embedded=embedded)


def run(source: Source, options: Options, *, greeting: str, open_until_token: bool = False) -> None:
    """Serve until a signal comes, or the time is up."""
    import asyncio

    listening = _listen(options)
    running: list[tuple[asyncio.AbstractEventLoop, Server]] = []

    def told() -> None:
        if not running:
            raise KeyboardInterrupt
        [(loop, server)] = running
        with suppress(RuntimeError):  # the loop has just ended
            loop.call_soon_threadsafe(_stop, server)

    def started(server: Server) -> None:
        loop = asyncio.get_running_loop()
        running.append((loop, server))
        if options.seconds is not None:
            loop.call_later(options.seconds, server.stop)
        greet(source, listening, greeting)
        if server.notice:
            typer.echo(f"  {server.notice}")
        typer.echo("Ctrl-C stops it.")

    # Not the loop's own handlers: with these the next signal would kill the process between the end
    # of the loop and the end of an embedded PostgreSQL.
    with listening, on_signals(told):
        _serve(source, listening, options, started, open_until_token=open_until_token)
    typer.echo("Stopped.")


@contextmanager
def beside(source: Source, options: Options, *, open_until_token: bool) -> Iterator[str]:
    """Serve in a thread of its own within this block; yields the URL, and prints the server's
    notice as `run` does."""
    import asyncio

    listening = _listen(options)
    servers: list[tuple[asyncio.AbstractEventLoop, Server]] = []
    ready = threading.Event()
    failures: list[BaseException] = []
    over = threading.Event()

    def started(server: Server) -> None:
        servers.append((asyncio.get_running_loop(), server))
        if over.is_set():  # the block ended before the server had started
            server.stop()
        ready.set()

    def serve() -> None:
        try:
            _serve(source, listening, options, started, open_until_token=open_until_token)
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
            with suppress(RuntimeError):  # the loop has just ended
                loop.call_soon_threadsafe(server.stop)
        thread.join()
        listening.close()


def greet(source: Source, listening: socket.socket, greeting: str) -> None:
    """Print the addresses, and a command to try in another terminal."""
    typer.echo(f"{greeting}: {source.name}")
    typer.echo(f"  Dashboard and API: {_url(listening)}")
    if source.embedded:  # a given address may hold a password
        typer.echo(f"  export HEADRACE_DSN='{source.dsn}'")
    typer.echo("  headrace publish order.created '{\"order\": 42}'")


def _serve(
    source: Source,
    listening: socket.socket,
    options: Options,
    started: Callable[[Server], object],
    *,
    open_until_token: bool,
) -> None:
    import asyncio

    from headrace.server.http.gate import Access
    from headrace.server.http.server import serve

    hosts = tuple(options.allow_host or ())
    access = Access(options.open, open_until_token, _first_token(options.token_file), hosts)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(
            serve(
                source.dsn,
                listening,
                started=started,
                connections=options.connections,
                prepare=not options.pooler,
                access=access,
                limits=options.limits(),
            )
        )


def _first_token(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get("HEADRACE_TOKEN") or None
    try:
        return file.read_text("utf-8", "replace").strip()
    except OSError as error:
        raise InvalidInput(
            f"cannot read the token from {file}: {error.strerror or error}"
        ) from None


def _stop(server: Server) -> None:
    """Stop the server; a second signal does not wait for requests in progress."""
    server.force_exit = server.should_exit
    server.stop()


def _listen(options: Options) -> socket.socket:
    listen = _server_package()
    if options.port is not None:
        return listen(options.host, options.port)
    try:
        return listen(options.host, PORT)
    except InvalidInput:
        return listen(options.host, 0)


def _server_package() -> Callable[[str, int], socket.socket]:
    try:
        from headrace.server.http.server import listen
    except ImportError as error:
        if (error.name or "").startswith("headrace"):
            raise
        raise HeadraceError(MISSING) from error
    return listen


def _url(listening: socket.socket) -> str:
    host, port, *_ = listening.getsockname()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _loop_factory() -> Any:
    """uvloop's loop, which is twice as fast, if it is installed."""
    if sys.platform == "win32":
        return None
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
