"""Rounds, and what is read before and after each turn: time, CPU here, CPU of the server, WAL."""

from __future__ import annotations

import gc
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psycopg


class Sample(msgspec.Struct, frozen=True):
    """One contender's turn in one round."""

    events: int
    seconds: float
    client_cpu: float
    server_cpu: float | None  # None: the server's processes are not on this machine
    wal: int
    vacuum_cpu: float | None = None
    vacuum_wal: int = 0
    p50_ms: float | None = None  # None: its single requests are not timed
    p99_ms: float | None = None

    @property
    def rate(self) -> float:
        return self.events / self.seconds


class Watch:
    """Measures time from its first start to its last stop."""

    def __init__(self) -> None:
        self._started: float | None = None
        self._stopped = 0.0

    def start(self) -> None:
        if self._started is None:
            self._started = time.perf_counter()

    def start_at(self, moment: float) -> None:
        """At a moment of the monotonic clock, which another process has told."""
        self._started = _here(moment)

    def stop(self) -> None:
        self._stopped = time.perf_counter()

    def stop_at(self, moment: float) -> None:
        self._stopped = _here(moment)

    @property
    def seconds(self) -> float:
        assert self._started is not None
        return self._stopped - self._started


def _here(moment: float) -> float:
    return time.perf_counter() - (time.monotonic() - moment)


class Contender(ABC):
    """One way to do what a case measures."""

    name: str
    tables: tuple[str, ...] = ()
    """What is vacuumed after a turn."""
    share: float = 1
    """Of the events that others get: who is a hundred times as slow need not take a hundred times as long."""
    latencies: Sequence[float] = ()
    """How long each request of the last turn took, in seconds, where that is timed."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.admin = psycopg.connect(dsn, autocommit=True)

    def setup(self) -> None:  # noqa: B027  (most need nothing)
        """What must be there before the first turn. Who cannot take part raises an error that says why."""

    def prepare(self, events: int) -> None:  # noqa: B027  (most need nothing)
        """What must be there before the turn."""

    @abstractmethod
    def run(self, events: int, watch: Watch) -> None:
        """Do it, starting and stopping the watch."""

    def settle(self) -> None:  # noqa: B027  (most have nothing under way)
        """End what is still under way after a turn, or after one that failed."""

    def client_cpu(self) -> float:
        """Used so far by whoever does the work."""
        return time.process_time()

    def vacuum(self) -> None:
        for table in self.tables:
            self.admin.execute(f"vacuum (analyze) {table}")

    def close(self) -> None:
        self.admin.close()


class Reading(msgspec.Struct, frozen=True):
    client_cpu: float
    server_cpu: float | None
    wal: int


class Meter:
    """Reads CPU and WAL. All that the server does meanwhile counts, so it should serve nobody else."""

    def __init__(self, dsn: str) -> None:
        self._connection = psycopg.connect(dsn, autocommit=True)
        self._postmaster = _postmaster(self._connection.info.backend_pid)

    def close(self) -> None:
        self._connection.close()

    def take(self, contender: Contender, events: int) -> Sample:
        events = max(int(events * contender.share), 1)
        contender.prepare(events)
        gc.collect()
        watch = Watch()
        with self._difference(contender.client_cpu) as used:
            contender.run(events, watch)
        contender.settle()
        with self._difference(time.process_time) as vacuumed:
            contender.vacuum()
        cost, upkeep = used(), vacuumed()
        return Sample(
            events,
            watch.seconds,
            cost.client_cpu,
            cost.server_cpu,
            cost.wal,
            upkeep.server_cpu,
            upkeep.wal,
            _percentile(contender.latencies, 50),
            _percentile(contender.latencies, 99),
        )

    @contextmanager
    def _difference(self, client_cpu: Callable[[], float]) -> Iterator[Callable[[], Reading]]:
        before, used = self.read(client_cpu), client_cpu()  # after: reading takes CPU, too
        after: list[Reading] = []

        def difference() -> Reading:
            (end,) = after
            known = before.server_cpu is not None and end.server_cpu is not None
            return Reading(
                used,
                end.server_cpu - before.server_cpu if known else None,  # type: ignore[operator]
                end.wal - before.wal,
            )

        yield difference
        used = client_cpu() - used
        after.append(self.read(client_cpu))

    def read(self, client_cpu: Callable[[], float]) -> Reading:
        row = self._connection.execute(
            "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"
        ).fetchone()
        assert row is not None
        return Reading(client_cpu(), _cpu_of_server(self._postmaster), row[0])


def _percentile(seconds: Sequence[float], percent: int) -> float | None:
    """In milliseconds."""
    if not seconds:
        return None
    return sorted(seconds)[(len(seconds) - 1) * percent // 100] * 1000


class Failure(msgspec.Struct, frozen=True):
    """Somebody who was not measured to the end, and why."""

    name: str
    why: str


class Played(msgspec.Struct, frozen=True):
    samples: dict[str, list[Sample]]
    left_out: list[Failure]


def play(
    meter: Meter,
    contenders: list[Contender],
    events: int,
    rounds: int,
    say: Callable[[str], Any] = lambda text: None,
) -> Played:
    """Let all take their turn in every round, so that whatever the machine does meets all alike.

    Who fails is left out from then on, with all that was measured of it. That is for the others: ours, the first, must not.
    """
    samples: dict[str, list[Sample]] = {contender.name: [] for contender in contenders}
    failures: dict[str, str] = {}

    @contextmanager
    def turn_of(contender: Contender) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if contender is contenders[0]:
                raise
            failures[contender.name] = str(error) or type(error).__name__
            del samples[contender.name]
            contender.settle()

    for contender in contenders:
        say(f"warming up: {contender.name}")  # connections, prepared statements, cached plans
        with turn_of(contender):
            contender.setup()
            meter.take(contender, max(events // 4, 1))
    for number in range(rounds):
        first = number % len(contenders)
        for contender in contenders[first:] + contenders[:first]:
            if contender.name in samples:
                say(f"round {number + 1} of {rounds}: {contender.name}")
                with turn_of(contender):
                    samples[contender.name].append(meter.take(contender, events))
    return Played(samples, [Failure(name, why) for name, why in failures.items()])


def _postmaster(backend: int) -> int | None:
    """The parent of our backend, if the server's processes can be seen from here."""
    stat = _stat(backend)
    return None if stat is None or stat.command != "postgres" else stat.parent


def _cpu_of_server(postmaster: int | None) -> float | None:
    """Of the postmaster and its children. Those that have ended are in what it has waited for."""
    own = None if postmaster is None else _stat(postmaster)
    if own is None:
        return None
    total = own.cpu + own.waited_cpu
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            process = _stat(int(entry.name))
            if process is not None and process.parent == postmaster:
                total += process.cpu
    return total


class Stat(msgspec.Struct, frozen=True):
    pid: int
    command: str
    parent: int
    waited_cpu: float

    @property
    def cpu(self) -> float:
        return cpu_of(self.pid)


def cpu_of(pid: int) -> float:
    """By the process's own clock; /proc counts in hundredths of a second, too coarse for a turn."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:  # it has just ended
        return 0.0


def _stat(pid: int) -> Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    command = text[text.index("(") + 1 : text.rindex(")")]
    fields = text[text.rindex(")") + 2 :].split()
    ticks = os.sysconf("SC_CLK_TCK")
    return Stat(pid, command, int(fields[1]), (int(fields[13]) + int(fields[14])) / ticks)
