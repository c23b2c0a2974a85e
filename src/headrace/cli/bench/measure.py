"""Measures a PostgreSQL: publishing, draining by a node, and the latency of an idle node."""

from __future__ import annotations

import queue
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
import psycopg

from headrace.cli.bench.bench import BATCH
from headrace.cli.bench.node_thread import NodeThread
from headrace.cli.bench.place import Place
from headrace.cli.terminal.errors import NotDone
from headrace.cli.terminal.progress import Bar, Interruption
from headrace.client import connect
from headrace.driver.connect import open_session

LOOK = 0.1  # seconds between two updates of the bar
PATIENCE = 30.0  # seconds to wait for a handler
WRITTEN = "select pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_insert_lsn(), '0/0')::bigint"


class Measure(msgspec.Struct, frozen=True):
    """Durations of a number of events, of single calls among them, and the WAL written for them."""

    what: str
    events: int
    seconds: float
    rate: float | None
    p50_ms: float | None
    p95_ms: float | None
    wal_bytes: float | None
    """Per event; includes WAL that others wrote meanwhile."""


class Measurement:
    """The measurements, one after the other, of at most `most` seconds each. Ctrl-C ends them
    between two calls."""

    def __init__(
        self,
        place: Place,
        connections: int,
        size: int,
        most: float,
        bar: Bar,
        interruption: Interruption,
        *,
        prepare: bool,
    ) -> None:
        self._place, self._prepare = place, prepare
        self._connections = connections
        self._event = ("bench", {"text": "x" * size})
        self._most = most
        self._bar, self._interruption = bar, interruption
        self._lock = threading.Lock()

    def everything(self, events: int, singles: int, pick_ups: int) -> tuple[str, list[Measure]]:
        """The server's version, and the measurements."""
        place, of = self._place, self._connections
        with (
            open_session(place.dsn) as asking,
            connect(
                place.dsn, namespace=place.namespace, pool_size=of, prepare=self._prepare
            ) as queue,
        ):
            self._asking, self._queue = asking, queue
            published = [
                self._publish(f"publish, {BATCH:,} at a time", events, BATCH, 1),
                self._publish("publish, one at a time", singles, 1, 1),
                self._publish(f"publish, one at a time, {of} at once", singles, 1, of),
            ]
            drained = self._drain(sum(one.events for one in published))
            picked_up = self._pick_up(pick_ups)
            version = asking.info.parameter_status("server_version") or "?"
        return version, [*published, drained, picked_up]

    def _publish(self, what: str, events: int, together: int, threads: int) -> Measure:
        """Publish `events` events from `threads` threads, `together` per call."""
        took: list[float] = []
        left, done = events, 0
        written, began = self._written(), time.monotonic()

        def work() -> None:
            nonlocal left, done
            while not self._is_over(began):
                with self._lock:
                    some = min(left, together)
                    left -= some
                if not some:
                    return
                before = time.monotonic()
                self._publish_some(some)
                after = time.monotonic()
                with self._lock:
                    done += some
                    took.append(after - before)
                    self._bar.advance(some)

        with ThreadPoolExecutor(threads) as pool:
            for one in [pool.submit(work) for _ in range(threads)]:
                one.result()
        self._interruption.check()
        return self._measured(what, done, time.monotonic() - began, written, took)

    def _publish_some(self, some: int) -> None:
        if some == 1:
            self._queue.publish(*self._event)
        else:
            self._queue.publish_many([self._event] * some)

    def _drain(self, events: int) -> Measure:
        """The time from the first handler until a node has handled all, or is out of time."""
        times: list[float] = []
        complete = threading.Event()

        def handled() -> None:
            times.append(time.monotonic())
            if len(times) == events:
                complete.set()

        written = self._written()
        with NodeThread(self._place, handled, prepare=self._prepare):
            began, shown = time.monotonic(), 0
            while not complete.wait(LOOK) and not self._is_over(began):
                self._bar.advance(len(times) - shown)
                shown = len(times)
        ended = time.monotonic()
        self._bar.advance(len(times) - shown)
        self._interruption.check()
        seconds = ended - times[0] if times else 0.0
        return self._measured("drain by a node", len(times), seconds, written, [])

    def _pick_up(self, times: int) -> Measure:
        """The latency from the return of a publish to the handler of an idle node."""
        seen: queue.SimpleQueue[float] = queue.SimpleQueue()
        took: list[float] = []
        written = self._written()
        with NodeThread(self._place, lambda: seen.put(time.monotonic()), prepare=self._prepare):
            began = time.monotonic()
            for _ in range(times):
                if self._is_over(began):
                    break
                time.sleep(random.uniform(0.01, 0.03))  # so that the node sleeps, and never in step
                self._queue.publish(*self._event)
                told = time.monotonic()
                took.append(max(_next(seen) - told, 0.0))
                self._bar.advance(1)
        self._interruption.check()
        found = self._measured("pick-up by an idle node", len(took), sum(took), written, took)
        return msgspec.structs.replace(found, rate=None)

    def _is_over(self, began: float) -> bool:
        return self._interruption.pressed or time.monotonic() - began > self._most

    def _written(self) -> int | None:
        """The WAL position in bytes; None if the server does not tell."""
        try:
            row = self._asking.execute(WRITTEN).fetchone()
        except psycopg.Error:  # a standby has none, and the right may be revoked
            return None
        return None if row is None else int(row[0])

    def _measured(
        self, what: str, events: int, seconds: float, before: int | None, took: list[float]
    ) -> Measure:
        after = self._written()
        known = before is not None and after is not None and events > 0
        return Measure(
            what,
            events,
            round(seconds, 3),
            round(events / seconds, 1) if seconds else 0.0,
            _percentile(took, 0.5),
            _percentile(took, 0.95),
            round((after - before) / events, 1) if known else None,  # type: ignore[operator]
        )


def _next(seen: queue.SimpleQueue[float]) -> float:
    try:
        return seen.get(timeout=PATIENCE)
    except queue.Empty:
        raise NotDone(
            f"An idle node did not start an event within {PATIENCE:g} s of its publish."
        ) from None


def _percentile(took: list[float], part: float) -> float | None:
    """In milliseconds."""
    return round(1000 * sorted(took)[int(len(took) * part)], 3) if took else None
