"""The action of `headrace up --demo`: a worker is killed with -9, and its events come back."""

from __future__ import annotations

import logging
import math
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO

import psycopg
from rich.text import Text

import headrace
from headrace.cli.demo import lifeline
from headrace.cli.demo.worker import LEASE
from headrace.cli.source import Source
from headrace.telemetry.redact import redacted

WORKERS = 3
BEATS = 5  # a second
RATE = 3.0  # orders per beat, each the cause of other events: slow enough to watch
WAVE = 4 * 60 * BEATS  # beats per rise and fall of the load
RUSH = 90 * BEATS  # beats between two rushes of many orders at once
CROWD = 200
KILL_AFTER = 8.0
PAUSE = 30.0  # seconds from one killed worker to the next
PATIENCE = 5.0  # seconds for workers to end
_SAID = re.compile(
    rb"(?:began|failed) [1-9][0-9]{0,18}\n|completed [1-9][0-9]{0,18} [\w.]+ [0-9]+\n"
)
"""A complete line of a worker."""


@dataclass
class Worker:
    """A worker process and its reports so far."""

    place: int
    """A worker that replaces a dead one gets its place, and its name as a node."""
    process: subprocess.Popen[bytes]
    complaints: IO[bytes]
    holds: set[int] = field(default_factory=set)
    done: int = 0
    silent: bool = False
    """Its output has ended and was read."""
    killed_at: float | None = None

    @property
    def name(self) -> str:
        return f"worker {self.process.pid}"

    @property
    def complaint(self) -> str:
        """The last line of its standard error."""
        self.complaints.seek(0)
        lines = self.complaints.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self.process.returncode}"


class Demonstration:
    """Publishes, watches its workers, kills one now and then, and counts for the screen."""

    def __init__(
        self, where: Source, queue: headrace.EventQueue, audit: headrace.EventQueue, url: str
    ) -> None:
        self.where = where
        self.url = url
        self.queue = queue
        self.audit = audit
        self.workers: list[Worker] = []
        self.story: deque[Text] = deque(maxlen=9)
        self.completed: deque[int] = deque([0] * 40, maxlen=40)
        self.orphans: dict[int, str] = {}
        self.buried = 0
        self.hindrances: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        self.stats = queue.stats(period=60)
        self.changed = threading.Lock()

    def start_worker(self, place: int) -> None:
        """Start a worker and read its reports."""
        complaints = tempfile.TemporaryFile()  # noqa: SIM115  (an unread pipe fills up)
        process = lifeline.start(
            [sys.executable, "-m", "headrace.cli.demo.worker"],
            env={
                **os.environ,
                "HEADRACE_DSN": self.where.dsn,
                "HEADRACE_DEMO_NODE": f"demo-{place}",
            },
            stdout=subprocess.PIPE,
            stderr=complaints,
            start_new_session=True,  # Ctrl-C reaches this process only, which sends SIGTERM
        )
        worker = Worker(place, process, complaints)
        with self.changed:
            self.workers.append(worker)
        threading.Thread(target=self.listen, args=(worker,), daemon=True).start()

    def listen(self, worker: Worker) -> None:
        """Read the reports of a worker until it ends."""
        assert worker.process.stdout is not None
        for line in worker.process.stdout:
            said = _SAID.fullmatch(line)
            if said:  # a handler may print something, and a killed worker leaves half a line
                action, *rest = said[0].decode().split()
                with self.changed:
                    self.heard(worker, action, rest)
        worker.silent = True

    def heard(self, worker: Worker, action: str, rest: list[str]) -> None:
        event = int(rest[0])
        if action == "began":
            worker.holds.add(event)
            return
        worker.holds.discard(event)
        worker.done += 1
        self.counts[action] += 1
        if action == "completed":
            self.completed[-1] += 1
            if self.orphans.pop(event, None):
                self.say(
                    f"event {event} came back and was completed, attempt {rest[2]}", "bold green"
                )
                self.count_orphans()

    def count_orphans(self) -> None:
        """Log it when there are no more orphans."""
        if not self.orphans:
            but = f", except {self.buried}" if self.buried else ""
            self.say(
                f"other workers completed all events of the dead worker{but}",
                "bold green",
            )
            self.buried = 0

    def drop_ended_orphans(self) -> None:
        """Wait no longer for orphans that became dead letters or were cancelled."""
        with self.changed:
            orphans = list(self.orphans)
        statuses = {event: self.queue.event(event).status for event in orphans}
        with self.changed:
            for event, status in statuses.items():
                if status in ("FAILED", "CANCELLED") and event in self.orphans:
                    del self.orphans[event]
                    self.buried += 1
                    self.say(f"event {event} came back and is {status}", "yellow")
                    self.count_orphans()

    def kill(self) -> None:
        """kill -9 a worker that has events in progress."""
        with self.changed:
            alive = [w for w in self.workers if w.process.poll() is None]
            victim = max(alive, key=lambda w: len(w.holds), default=None)
            if victim is not None and victim.holds:
                victim.process.send_signal(signal.SIGKILL)

    def notice(self) -> None:
        """Find workers that died, killed by the demo or otherwise."""
        with self.changed:
            for worker in self.workers:
                if worker.killed_at is None and worker.silent and worker.process.poll() is not None:
                    worker.killed_at = time.monotonic()
                    self.tell_of(worker)

    def tell_of(self, worker: Worker) -> None:
        if worker.process.returncode != -signal.SIGKILL:
            self.say(f"{worker.name} ended: {worker.complaint}", "red")
            return
        self.orphans |= dict.fromkeys(worker.holds, worker.name)
        self.say(
            f"kill -9 {worker.process.pid}: it had {len(worker.holds)} events in progress; their "
            f"leases end within {LEASE:.0f} s, then other workers get them",
            "bold red",
        )

    def replace(self) -> None:
        """Replace dead workers by new ones."""
        now = time.monotonic()
        with self.changed:
            gone = [w for w in self.workers if w.killed_at and now - w.killed_at > LEASE + 3]
            self.workers = [w for w in self.workers if w not in gone]
        for worker in gone:
            self.start_worker(worker.place)

    def publish(self, beat: int) -> None:
        """Publish some events of several types, in one round trip."""
        rate = RATE * (1 + 0.6 * math.sin(2 * math.pi * beat / WAVE))
        orders = CROWD if beat % RUSH == 0 else int(rate + random.random())
        events = [order(beat) for _ in range(orders)]
        if beat % 20 == 0:
            rows = random.choice([0, 7, 42, 180, 1200, 5, 64, 23])
            events.append(headrace.NewEvent("import.finished", {"rows": rows}))
        if beat % 300 == 0:  # its handler cannot read this one
            events.append(headrace.NewEvent("order.created", {"number": "seven"}, tags=["web"]))
        with self.hindered("publish"):
            self.queue.publish_many(events)

    def inspect(self) -> None:
        """Work on the second queue without a node: claim, and complete."""
        with self.hindered("inspect"):
            for claimed in self.audit.poll(max_events=50):
                self.audit.complete(claimed, execution_time_ms=random.randint(1, 4))

    @contextmanager
    def hindered(self, what: str) -> Iterator[None]:
        """A user may drain, limit or remove a queue meanwhile, or the database may be away: that is
        logged once, and retried at the next beat."""
        try:
            yield
        except (headrace.NotTaken, headrace.QueueNotFound) as error:
            self.hinder(what, str(error))
        except psycopg.OperationalError:
            self.hinder(what, "the database does not answer")
        else:
            self.hindrances.pop(what, None)

    def hinder(self, what: str, why: str) -> None:
        if why not in self.hindrances.values():
            with self.changed:
                self.say(why, "yellow")
        self.hindrances[what] = why

    def look(self) -> None:
        """Read the figures of the queue."""
        with self.hindered("look"):
            self.queue.tick()
            self.stats = self.queue.stats(period=60)
            self.drop_ended_orphans()

    def say(self, words: str, style: str) -> None:
        self.story.append(Text(f"{time.strftime('%H:%M:%S')}  {words}", style=style))


class Teller(logging.Handler):
    """Copies log records into the live log: that PostgreSQL was started again, for one."""

    def __init__(self, show: Demonstration) -> None:
        super().__init__(logging.WARNING)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        with self._show.changed:
            self._show.say(redacted(record.getMessage()), "yellow")


def order(number: int) -> headrace.NewEvent:
    """A random order."""
    items = random.randint(1, 5)
    tags = [random.choice(["web", "app", "phone"]), *(["priority-high"] if items == 5 else [])]
    customer = f"customer-{random.randint(1, 50)}"
    payload = {"number": number, "items": items, "customer": customer}
    return headrace.NewEvent("order.created", payload, tags=tags, key=customer)


def second(where: Source, queue: headrace.EventQueue) -> headrace.EventQueue:
    """A second queue, which gets the payments too."""
    queue.create_queue("audit", types=["payment.*"])
    return headrace.connect(where.dsn, queue="audit", worker="auditor", pool_size=1)


def play(
    show: Demonstration,
    stop: threading.Event,
    seconds: float | None,
    every_second: Callable[[], object],
) -> None:
    """The clockwork: five beats a second."""
    started = time.monotonic()
    next_kill = started + KILL_AFTER
    beat = 0
    while not stop.wait(1 / BEATS):
        beat += 1
        show.publish(beat)
        show.inspect()
        show.notice()
        if beat % BEATS == 0:
            show.look()
            show.completed.append(0)
            show.replace()
            every_second()
        if time.monotonic() >= next_kill:
            show.kill()
            next_kill = time.monotonic() + PAUSE
        if seconds is not None and time.monotonic() - started >= seconds:
            return


def stop_workers(show: Demonstration) -> None:
    """Let every worker release unstarted events and end; a second signal kills them."""
    for worker in show.workers:
        worker.process.terminate()
    until = time.monotonic() + PATIENCE
    try:
        for worker in show.workers:
            with suppress(subprocess.TimeoutExpired):
                worker.process.wait(max(0.0, until - time.monotonic()))
    except KeyboardInterrupt:
        pass
    for worker in show.workers:
        worker.process.kill()
    for worker in show.workers:
        worker.process.wait()
        worker.complaints.close()
