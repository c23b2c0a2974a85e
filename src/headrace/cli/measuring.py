"""Measures a PostgreSQL from here, in a namespace that is removed in the end."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import msgspec

from headrace.cli.bench import BATCH
from headrace.cli.failing import Interrupted
from headrace.cli.progress import Bar, Interruption, stepping
from headrace.cli.source import Source, me
from headrace.client import EventQueue, connect
from headrace.model import Claimed

CLAIM = 100  # events that are claimed together
ROUNDS = 200  # events that go through alone


class Measure(msgspec.Struct, frozen=True):
    """How long some events took, and single calls among them."""

    what: str
    events: int
    seconds: float
    p50_ms: float | None
    p95_ms: float | None

    @property
    def rate(self) -> float:
        return self.events / self.seconds if self.seconds else 0.0


@contextmanager
def own_namespace(where: Source, connections: int, *, pooler: bool) -> Iterator[EventQueue]:
    """A namespace for this alone, which is removed whatever happens."""
    name = f"bench-{secrets.token_hex(4)}"
    with connect(
        where.dsn, namespace=name, pool_size=connections, prepare=not pooler, worker=me()
    ) as queue:
        try:
            yield queue
        finally:
            _remove(queue, name)


def _remove(queue: EventQueue, name: str) -> None:
    removed = False
    try:
        with Bar("Removing", None) as bar, stepping(bar):
            queue.delete_namespace(name, with_deliveries=True)
            removed = True
            while queue.tick().more:
                pass
    except KeyboardInterrupt:
        if not removed:
            command = f"headrace namespaces remove {name} --with-deliveries"
            raise Interrupted(f"Interrupted: what was measured with is left; {command}") from None


class Run:
    """The measurements, one after the other; Ctrl-C ends them between two calls."""

    def __init__(
        self, queue: EventQueue, connections: int, text: str, bar: Bar, interruption: Interruption
    ) -> None:
        self._queue = queue
        self._connections = connections
        self._event = ("bench", {"text": text})
        self._bar, self._interruption = bar, interruption
        self._lock = threading.Lock()

    def everything(self, events: int, singles: int) -> list[Measure]:
        of = self._connections
        batches = self._measure(f"publish, {BATCH:,} at a time", events, 1, self._publish_batch)
        ones = self._measure(
            f"publish, one at a time, {of} at once", singles, of, self._publish_one
        )
        waiting = batches.events + ones.events
        work = self._measure(
            f"claim and complete, {CLAIM} at a time, {of} at once", waiting, of, self._work
        )
        rounds = self._measure("publish, claim and complete one", ROUNDS, 1, self._round)
        return [batches, ones, work, rounds]

    def _measure(self, what: str, events: int, threads: int, call: Callable[[int], int]) -> Measure:
        """Call it from so many threads until so many events were done."""
        took: list[float] = []
        left = events
        began = time.monotonic()

        def work() -> None:
            nonlocal left
            while not self._interruption.pressed:
                with self._lock:
                    if left <= 0:
                        return
                    wanted = min(left, BATCH)
                before = time.monotonic()
                done = call(wanted)
                after = time.monotonic()
                with self._lock:
                    left -= done
                    took.append(after - before)
                    self._bar.advance(done)

        if threads == 1:
            work()
        else:
            with ThreadPoolExecutor(threads) as pool:
                for one in [pool.submit(work) for _ in range(threads)]:
                    one.result()
        self._interruption.check()
        seconds = time.monotonic() - began
        return Measure(what, events - left, seconds, *_percentiles(took))

    def _publish_batch(self, wanted: int) -> int:
        return len(self._queue.publish_many([self._event] * wanted))

    def _publish_one(self, wanted: int) -> int:
        self._queue.publish(*self._event)
        return 1

    def _work(self, wanted: int) -> int:
        claimed = self._queue.poll(max_events=CLAIM)
        if claimed:
            self._queue.complete(claimed)
        return len(claimed)

    def _round(self, wanted: int) -> int:
        self._queue.publish(*self._event)
        claimed: list[Claimed] = []
        while not claimed and not self._interruption.pressed:
            claimed = self._queue.poll(max_events=1)
        if claimed:
            self._queue.complete(claimed)
        return 1


def _percentiles(took: list[float]) -> tuple[float | None, float | None]:
    if not took:
        return None, None
    ordered = sorted(took)
    return tuple(round(1000 * ordered[int(len(ordered) * part)], 3) for part in (0.5, 0.95))  # type: ignore[return-value]
