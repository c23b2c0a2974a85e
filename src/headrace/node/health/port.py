"""A port for probes and Prometheus: is the worker alive, is it ready, what has it done.

    /healthz   200 while the event loop answers
    /readyz    200 while the node claims and PostgreSQL commits, else 503 and why. Over several
               shards 200 while one of them works, and a line for each that does not
    /metrics   figures for Prometheus

The port has a thread of its own, so that it can report an event loop that does not answer. It shows
no payloads and takes no orders; still, open it only to a network of your own machines.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any, NamedTuple, Self

from headrace.errors import InvalidInput
from headrace.node.health.vitals import Vitals
from headrace.telemetry.prometheus import CONTENT_TYPE, text

logger = logging.getLogger("headrace.node")

PATIENCE = 5.0  # seconds that a client has to ask, and the event loop to answer
AT_ONCE = (
    16  # connections; one more takes the place of one that asks for nothing, or is turned away
)
PLAIN = "text/plain; charset=utf-8"


class Response(NamedTuple):
    status: int
    body: str
    content_type: str = PLAIN


class Look(NamedTuple):
    """The vitals, and how long the event loop took to give them."""

    vitals: Vitals
    lag: float


class HealthPort:
    """`async with HealthPort(address, vitals)`: open while the block runs. `vitals` is called in
    the event loop; so is `prove`, which returns a problem that `vitals` does not show, and those of
    some shards."""

    def __init__(
        self,
        address: str,
        vitals: Callable[[], Vitals],
        patience: float = PATIENCE,
        prove: Callable[[], Coroutine[Any, Any, tuple[str | None, dict[str, str]]]] | None = None,
    ) -> None:
        self._vitals = vitals
        self._prove = prove
        self._patience = patience
        self._server = _Server(*parsed(address), self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="headrace health", daemon=True
        )

    @property
    def address(self) -> str:
        """The address on which it listens, with the real number of a port 0."""
        host, port = self._server.server_address[:2]
        return f"[{host!s}]:{port}" if ":" in str(host) else f"{host!s}:{port}"

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        logger.info("the health port listens on %s", self.address)
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self._server.shutdown)
        self._server.server_close()

    def answer(self, path: str) -> Response:
        """Called by the port's own threads."""
        ask = {"/healthz": _alive, "/readyz": _ready, "/metrics": _metrics}.get(path)
        if ask is None:
            return Response(404, "Not found: there are /healthz, /readyz and /metrics.\n")
        try:
            look = self._look()
            if path == "/readyz" and look.vitals.trouble is None and self._prove is not None:
                proof = asyncio.run_coroutine_threadsafe(self._prove(), self._loop)
                trouble, some = proof.result(PATIENCE)
                without = {**look.vitals.without, **some}
                look = look._replace(vitals=replace(look.vitals, trouble=trouble, without=without))
            return ask(look)
        except TimeoutError:
            return Response(
                503, f"The event loop has not answered for {self._patience:g} seconds.\n"
            )

    def _look(self) -> Look:
        seen: Future[Vitals] = Future()
        asked = time.monotonic()
        with suppress(RuntimeError):  # it is closed, and will not answer either
            self._loop.call_soon_threadsafe(self._show, seen)
        return Look(seen.result(self._patience), time.monotonic() - asked)

    def _show(self, seen: Future[Vitals]) -> None:
        try:
            seen.set_result(self._vitals())
        except Exception as error:
            seen.set_exception(error)


def _alive(look: Look) -> Response:
    return Response(200, "alive\n")


def _ready(look: Look) -> Response:
    trouble = look.vitals.trouble
    if trouble is not None:
        return Response(503, f"{trouble}\n")
    without = "".join(f"without {name}: {why}\n" for name, why in look.vitals.without.items())
    return Response(200, f"ready\n{without}")


def _metrics(look: Look) -> Response:
    return Response(200, text(look.vitals.families(look.lag)), CONTENT_TYPE)


def parsed(address: str) -> tuple[str, int]:
    """A host and a port, as in 0.0.0.0:9000, :9000 or [::1]:9000; without a host it is the loopback
    address."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InvalidInput(f"a health port must be HOST:PORT, as in 0.0.0.0:9000, not {address!r}")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


class _Server(ThreadingTCPServer):
    """Not http.server's, which asks for the name of its address, and waits for the answer."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 2 * AT_ONCE

    def __init__(self, host: str, port: int, health: HealthPort) -> None:
        self.health = health
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._free = threading.BoundedSemaphore(AT_ONCE)
        self._silent: OrderedDict[Any, None] = OrderedDict()
        self._counting = threading.Lock()
        try:
            super().__init__((host, port), _Request)
        except OSError as error:
            said = error.strerror or error
            raise InvalidInput(f"cannot listen on {host}:{port}: {said}") from None

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False) or self._make_room():
            with self._counting:
                self._silent[request] = None
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def _make_room(self) -> bool:
        """Close the connection that has been silent for longest: a probe must not wait for it."""
        with self._counting:
            if not self._silent:
                return False
            longest, _ = self._silent.popitem(last=False)
            with suppress(OSError):
                longest.shutdown(socket.SHUT_RDWR)  # its thread reads the end, and ends
        return self._free.acquire(timeout=PATIENCE)

    def asked(self, request: Any) -> None:
        """The client of a connection has asked for something."""
        with self._counting:
            self._silent.pop(request, None)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.asked(request)
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that does not wait for its response is not worth a line in the log."""


class _Request(BaseHTTPRequestHandler):
    timeout = PATIENCE
    server_version, sys_version = "headrace", ""
    server: _Server

    def do_GET(self) -> None:
        self.server.asked(self.connection)
        answer = self.server.health.answer(self.path.partition("?")[0])
        body = answer.body.encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *arguments: object) -> None:
        """Nor is a probe every few seconds."""
