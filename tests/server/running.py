"""A server in a thread of this process, as `headrace up` runs it."""

import asyncio
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from headrace.server.http.gate import Access
from headrace.server.http.server import Server, listen, serve
from tests.database import Database


@dataclass
class Running:
    """A server that runs, and the namespaces of those who use it."""

    db: Database
    port: int
    server: Server
    loop: asyncio.AbstractEventLoop
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def new_namespace(self) -> str:
        name = f"space{next(self._numbers)}"
        self.db.sql("select headrace.create_namespace(%s)", [name])
        return name

    def client(self, namespace: str | None = None, **options: Any) -> httpx.Client:
        params = {"namespace": namespace} if namespace else {}
        return httpx.Client(base_url=self.url, params=params, timeout=60, **options)

    def wait_no_longer_than(self, seconds: float) -> None:
        """For a connection: from now on, when it has those that it needs itself."""
        for pool in self.server.directory.pools.values():
            pool.timeout = seconds


@contextmanager
def running(db: Database, **options: Any) -> Iterator[Running]:
    options.setdefault("access", Access(open_until_token=True))
    listening = listen("127.0.0.1", 0)
    started: list[Running] = []
    ready = threading.Event()
    failed: list[BaseException] = []

    def note(server: Server) -> None:
        loop = asyncio.get_running_loop()
        started.append(Running(db, listening.getsockname()[1], server, loop))
        ready.set()  # the socket listens: who connects now is served as soon as the server is up

    def run() -> None:
        try:
            asyncio.run(serve(db.dsn, listening, started=note, **options))
        except BaseException as error:
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="server")
    thread.start()
    ready.wait(60)
    try:
        if failed:
            raise failed[0]
        yield started[0]
    finally:
        if started and thread.is_alive():
            started[0].loop.call_soon_threadsafe(started[0].server.stop)
        thread.join(60)
        listening.close()
        assert not thread.is_alive(), "the server did not stop"
