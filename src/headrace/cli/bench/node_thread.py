"""A node in a thread of its own, for a measurement in the same process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from headrace.cli.bench.place import Place
from headrace.model import Claimed
from headrace.node import Node

CONCURRENCY = 100


class NodeThread:
    """Calls `handled` for every event of a place within the `with` block; at its end, begun
    events are completed."""

    def __init__(self, place: Place, handled: Callable[[], None], *, prepare: bool) -> None:
        self._node = Node(
            dsn=place.dsn, namespace=place.namespace, prepare=prepare, concurrency=CONCURRENCY
        )

        @self._node.on_event("*")
        async def handle(event: Claimed) -> None:
            handled()

        self._runner = asyncio.Runner()
        self._over: asyncio.Event | None = None
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="node", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        self._reraise()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._over is not None:
            self._runner.get_loop().call_soon_threadsafe(self._over.set)
        self._thread.join()
        if error is None:
            self._reraise()

    def _reraise(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            with self._runner:
                self._runner.run(self._work())
        except BaseException as error:
            self._error = error
        finally:
            self._started.set()

    async def _work(self) -> None:
        async with self._node:
            self._over = asyncio.Event()
            self._started.set()
            await self._over.wait()
