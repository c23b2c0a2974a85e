"""Processes that run nodes, which a test starts, freezes and kills."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from headrace import EventQueue
from tests.database import Database

PROGRAM = Path(__file__).with_name("handling.py")
PATIENCE = 60.0
BUSY = 1.0  # seconds that a machine with other things to do may take longer than was promised


class Start(NamedTuple):
    type: str
    event: int
    attempt: int
    crashes: int
    retry_count: int
    at: float


class Worker:
    """One process; what it has noted and logged so far can be read at any time, also after its death."""

    def __init__(self, number: int, folder: Path, kind: str, options: dict[str, Any]) -> None:
        self._notes = folder / f"{number}.notes"
        self._log = folder / f"{number}.log"
        arguments = [str(self._notes), str(self._log), kind, options]
        self._process = subprocess.Popen([sys.executable, PROGRAM, json.dumps(arguments)])
        self.pid = self._process.pid

    @property
    def starts(self) -> list[Start]:
        return [Start(*note) for note in _lines(self._notes)]

    @property
    def said(self) -> list[str]:
        """The messages it has logged."""
        return [line["message"] for line in _lines(self._log)]

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE)

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ends(self) -> int:
        """Its exit code, when it has one."""
        return self._process.wait(PATIENCE)

    def waited(self) -> dict[str, int]:
        """For how many nanoseconds each of its threads could have run, had there been a processor for it."""
        waited = {}
        for thread in Path(f"/proc/{self.pid}/task").glob("*"):
            with suppress(OSError):  # it has ended
                waited[thread.name] = int((thread / "schedstat").read_text().split()[1])
        return waited

    def resident(self) -> int:
        """Bytes of memory that it has."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("it has no memory")


class Crew:
    """Workers on one database, all alike but for what `start` says.

    They take their time to tell of what has ended when they stop, where a server listens: in a second on a busy
    machine it may not get through. `telling=None` is as it is elsewhere.
    """

    def __init__(self, db: Database, folder: Path, **options: Any) -> None:
        self.db = db
        self._folder = folder
        ours = {"dsn": db.dsn, "lease": 2, "idle": 0.5, "grace": 5, "telling": PATIENCE}
        self._options = {**ours, **options}
        self.all: list[Worker] = []

    def start(self, kind: str = "async", **options: Any) -> Worker:
        worker = Worker(len(self.all), self._folder, kind, {**self._options, **options})
        self.all.append(worker)
        return worker

    def start_some(self, count: int, kind: str = "async", **options: Any) -> list[Worker]:
        """So many, and all of them at work when this returns."""
        workers = [self.start(kind, **options) for _ in range(count)]
        eventually(lambda: self._are_registered(workers))
        return workers

    def _are_registered(self, workers: list[Worker]) -> bool:
        registered = "select count(*) from headrace.nodes('default') where node_id = any (%s)"
        ids = [f"node-{worker.pid}" for worker in workers]
        return self.db.sql(registered, [ids]) == [(len(ids),)]

    @property
    def alive(self) -> list[Worker]:
        return [worker for worker in self.all if worker.is_alive()]

    @property
    def starts(self) -> list[Start]:
        """Everybody's, in the order of time."""
        starts = [start for worker in self.all for start in worker.starts]
        return sorted(starts, key=lambda start: start.at)

    def stop(self) -> None:
        """Have all that live end in good order."""
        alive = self.alive
        # Who has not begun yet does not know what to do when asked.
        eventually(lambda: self._are_registered(alive))
        for worker in alive:
            worker.signal(signal.SIGTERM)
        assert [worker.ends() for worker in alive] == [0] * len(alive)

    def discard(self) -> None:
        for worker in self.alive:
            worker.kill()


@contextmanager
def crew_of(db: Database, folder: Path, **options: Any) -> Iterator[Crew]:
    crew = Crew(db, folder, **options)
    try:
        yield crew
    finally:
        crew.discard()


def end_in_time(workers: list[Worker], seconds: float, ask: Callable[[], None]) -> None:
    """They end well within so many seconds of being asked. What one has to wait for a processor meanwhile is not
    held against it, nor is a second that may be lost where nobody counts it."""
    before = {worker: worker.waited() for worker in workers}
    latest = {worker: dict(waited) for worker, waited in before.items()}
    took: dict[Worker, float] = {}
    began = time.monotonic()
    ask()
    while len(took) < len(workers):
        for worker in [worker for worker in workers if worker not in took]:
            latest[worker] |= worker.waited()
            if not worker.is_alive():
                took[worker] = time.monotonic() - began
        assert time.monotonic() < began + PATIENCE, "it does not end"
        time.sleep(0.01)
    for worker in workers:
        starved = sum(latest[worker].values()) - sum(before[worker].values())
        assert worker.ends() == 0
        assert took[worker] - starved / 1e9 < seconds + BUSY, (
            f"{took[worker]} s, {starved} ns starved"
        )


def stalled() -> float:
    """Seconds, of all that have passed on this machine, in which somebody had to wait for a processor or the disk."""
    seconds = 0.0
    for resource in ("cpu", "io"):
        with suppress(OSError):  # where nobody counts, nobody is excused
            some = Path(f"/proc/pressure/{resource}").read_text().split("\n")[0]
            seconds += int(some.partition("total=")[2]) / 1e6
    return seconds


def eventually(condition: Callable[[], object], patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def ends(db: Database) -> list[tuple[int, str]]:
    """The ends that events have come to, of each event those it has."""
    return db.sql(
        "select m.event, o.action from headrace.outcomes o cross join lateral unnest(o.events) as m(event)"
        " where o.action in ('COMPLETED', 'COMPLETED_WITH_ERRORS', 'CANCELLED', 'DEAD_LETTERED') order by 1"
    )


def completed(db: Database, ids: Any) -> bool:
    """Whether each of these has come to exactly one end, and a good one."""
    return ends(db) == [(id, "COMPLETED") for id in sorted(ids)]


def open_deliveries(db: Database) -> int:
    [(count,)] = db.sql("select count(*) from headrace.deliveries")
    return int(count)


def actions(queue: EventQueue, id: int) -> list[str]:
    """What happened to an event, in order."""
    return [entry.action for entry in queue.log(id)]


def _lines(file: Path) -> Iterator[Any]:
    """The lines of a file; one that is only half written is not there yet."""
    if not file.exists():
        return iter(())
    *whole, _cut_short = file.read_text().split("\n")
    return map(json.loads, whole)
