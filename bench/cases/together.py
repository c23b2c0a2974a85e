"""Publish one event at a time, each committed before the next: many callers of one client, and one."""

import asyncio
import threading
from collections.abc import Iterator

import headrace
from bench.loop import runner
from bench.measure import Contender, Watch
from bench.payloads import TYPE, Payload, payloads

MANY = 32


def tasks(dsn: str) -> list[Contender]:
    return [Tasks(dsn, "headrace", MANY), Tasks(dsn, "one task", 1, share=0.1)]


def threads(dsn: str) -> list[Contender]:
    return [Threads(dsn, "headrace", MANY), Threads(dsn, "one thread", 1, share=0.1)]


class _Callers(Contender):
    payloads: Iterator[Payload]

    def __init__(self, dsn: str, name: str, callers: int, share: float = 1) -> None:
        super().__init__(dsn)
        self.name, self.callers, self.share = name, callers, share

    def prepare(self, events: int) -> None:
        self.payloads = iter(payloads(events))


class Tasks(_Callers):
    """Tasks of an async client."""

    def __init__(self, dsn: str, name: str, callers: int, share: float = 1) -> None:
        super().__init__(dsn, name, callers, share)
        self.runner = runner()
        self.queue = self.runner.run(self._connect())

    async def _connect(self) -> headrace.AsyncEventQueue:
        return await headrace.connect_async(self.dsn)

    def run(self, events: int, watch: Watch) -> None:
        watch.start()
        self.runner.run(self._publish_all())
        watch.stop()

    async def _publish_all(self) -> None:
        await asyncio.gather(*(self._publish() for _ in range(self.callers)))

    async def _publish(self) -> None:
        for payload in self.payloads:
            await self.queue.publish(TYPE, payload)

    def close(self) -> None:
        self.runner.run(self.queue.close())
        self.runner.close()
        super().close()


class Threads(_Callers):
    """Threads that share a plain client."""

    def __init__(self, dsn: str, name: str, callers: int, share: float = 1) -> None:
        super().__init__(dsn, name, callers, share)
        self.queue = headrace.connect(dsn)

    def run(self, events: int, watch: Watch) -> None:
        callers = [threading.Thread(target=self._publish) for _ in range(self.callers)]
        watch.start()
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        watch.stop()

    def _publish(self) -> None:
        for payload in self.payloads:  # a list's iterator, which threads may share
            self.queue.publish(TYPE, payload)

    def close(self) -> None:
        self.queue.close()
        super().close()
