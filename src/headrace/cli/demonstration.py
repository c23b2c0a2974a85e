"""`headrace up --demo`: events flow, a worker is killed with -9, and its events come back."""

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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO

import psycopg
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

import headrace
from headrace.cli import lifeline
from headrace.cli.demo_worker import LEASE
from headrace.cli.signals import stop_on_signals
from headrace.cli.source import Source
from headrace.cli.suggesting import suggestions
from headrace.redaction import redacted

WORKERS = 3
BEATS = 5  # a second
RATE = 3.0  # orders a beat, each the cause of others: slow enough to watch
WAVE = 4 * 60 * BEATS  # beats in which the load rises and falls
RUSH = 90 * BEATS  # beats between two rushes of many orders at once
CROWD = 200
KILL_AFTER = 8.0
PAUSE = 30.0  # between one worker's death and the next
BARS = " ▁▂▃▄▅▆▇█"
PATIENCE = 5.0  # seconds for workers to end
_SAID = re.compile(
    rb"(?:began|failed) [1-9][0-9]{0,18}\n|completed [1-9][0-9]{0,18} [\w.]+ [0-9]+\n"
)
"""A line of a worker, whole."""


@dataclass
class Worker:
    """A worker process and what it was last heard to say."""

    place: int
    """Whoever comes after a dead one has its place, and its name as a node."""
    process: subprocess.Popen[bytes]
    complaints: IO[bytes]
    holds: set[int] = field(default_factory=set)
    done: int = 0
    silent: bool = False
    """All that it ever said was heard."""
    killed_at: float | None = None

    @property
    def name(self) -> str:
        return f"worker {self.process.pid}"

    @property
    def complaint(self) -> str:
        """The last line of what it complained of."""
        self.complaints.seek(0)
        lines = self.complaints.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self.process.returncode}"


class Demonstration:
    """Publishes, watches its workers, kills one now and then, and keeps what there is to show."""

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

    # -- what happens ------------------------------------------------------------------------------

    def hire(self, place: int) -> None:
        """Start a worker and listen to it."""
        complaints = tempfile.TemporaryFile()  # noqa: SIM115  (a pipe that nobody reads fills up)
        process = lifeline.start(
            [sys.executable, "-m", "headrace.cli.demo_worker"],
            env={
                **os.environ,
                "HEADRACE_DSN": self.where.dsn,
                "HEADRACE_DEMO_NODE": f"demo-{place}",
            },
            stdout=subprocess.PIPE,
            stderr=complaints,
            start_new_session=True,  # Ctrl-C is for us, who send SIGTERM
        )
        worker = Worker(place, process, complaints)
        with self.changed:
            self.workers.append(worker)
        threading.Thread(target=self.listen, args=(worker,), daemon=True).start()

    def listen(self, worker: Worker) -> None:
        """Follow what a worker says until it is gone."""
        assert worker.process.stdout is not None
        for line in worker.process.stdout:
            said = _SAID.fullmatch(line)
            if (
                said
            ):  # a handler may print something, and a worker that is killed leaves half a line
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
        """Say so when there are no more."""
        if not self.orphans:
            but = f", but for {self.buried}" if self.buried else ""
            self.say(
                f"every event of the dead worker has been completed by the others{but}",
                "bold green",
            )
            self.buried = 0

    def bury(self) -> None:
        """Wait no longer for orphans that have died, or that somebody has cancelled."""
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
        """kill -9 of a worker that is at something."""
        with self.changed:
            alive = [w for w in self.workers if w.process.poll() is None]
            victim = max(alive, key=lambda w: len(w.holds), default=None)
            if victim is not None and victim.holds:
                victim.process.send_signal(signal.SIGKILL)

    def notice(self) -> None:
        """See who has died, by our hand or by somebody else's."""
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
            f"kill -9 {worker.process.pid}: it was at {len(worker.holds)} events; their lease "
            f"ends within {LEASE:.0f} s, then they are anybody's",
            "bold red",
        )

    def replace(self) -> None:
        """Bury the dead and start somebody new in their place."""
        now = time.monotonic()
        with self.changed:
            gone = [w for w in self.workers if w.killed_at and now - w.killed_at > LEASE + 3]
            self.workers = [w for w in self.workers if w not in gone]
        for worker in gone:
            self.hire(worker.place)

    def publish(self, beat: int) -> None:
        """Some events of several kinds, in one round trip."""
        rate = RATE * (1 + 0.6 * math.sin(2 * math.pi * beat / WAVE))
        orders = CROWD if beat % RUSH == 0 else int(rate + random.random())
        events = [order(beat) for _ in range(orders)]
        if beat % 20 == 0:
            rows = random.choice([0, 7, 42, 180, 1200, 5, 64, 23])
            events.append(headrace.NewEvent("import.finished", {"rows": rows}))
        if beat % 300 == 0:  # what its handler cannot read
            events.append(headrace.NewEvent("order.created", {"number": "seven"}, tags=["web"]))
        with self.hindered("publish"):
            self.queue.publish_many(events)

    def inspect(self) -> None:
        """Work on the second queue as anybody may who is no node: claim, and complete."""
        with self.hindered("inspect"):
            for claimed in self.audit.poll(max_events=50):
                self.audit.complete(claimed, execution_time_ms=random.randint(1, 4))

    @contextmanager
    def hindered(self, what: str) -> Iterator[None]:
        """Somebody tries what drain, a limit or remove does, or the database is away: said once, and tried again at the
        next beat."""
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
        """See how the queue is."""
        with self.hindered("look"):
            self.queue.tick()
            self.stats = self.queue.stats(period=60)
            self.bury()

    def say(self, words: str, style: str) -> None:
        self.story.append(Text(f"{time.strftime('%H:%M:%S')}  {words}", style=style))

    # -- what is shown -----------------------------------------------------------------------------

    def picture(self) -> Group:
        with self.changed:
            return Group(
                Panel(
                    self.figures(),
                    title="Headrace",
                    subtitle="Ctrl-C stops it",
                    border_style="cyan",
                ),
                self.team(),
                Panel(
                    Group(*self.story) if self.story else Text("…", style="dim"),
                    title="What happened",
                ),
            )

    def figures(self) -> Group:
        stats = self.stats
        grid = Table.grid(expand=True)
        for _ in range(5):
            grid.add_column(justify="center")
        grid.add_row("ready", "in work", "delayed", "dead letters", "completed")
        grid.add_row(
            *(
                Text(f"{number:,}", style="bold")
                for number in (
                    stats.ready,
                    stats.processing,
                    stats.delayed,
                    stats.dead_letters,
                    self.counts["completed"],
                )
            )
        )
        return Group(
            Text.assemble("The dashboard: ", (self.url, "bold cyan underline")),
            Text(self.where.name, style="dim"),
            grid,
            Text(f"completed a second  {spark(list(self.completed)[:-1])}", style="green"),
            suggestions(self.url, self.where.data),
        )

    def team(self) -> Table:
        table = Table(expand=True)
        table.add_column("worker")
        table.add_column("state")
        table.add_column("at work on", justify="right")
        table.add_column("done", justify="right")
        for worker in self.workers:
            state = (
                Text("works", style="green")
                if worker.killed_at is None
                else Text("dead", style="bold red")
            )
            table.add_row(worker.name, state, str(len(worker.holds)), str(worker.done))
        return table


class Teller(logging.Handler):
    """Puts what is logged into the story: that PostgreSQL is started again, for one."""

    def __init__(self, show: Demonstration) -> None:
        super().__init__(logging.WARNING)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        with self._show.changed:
            self._show.say(redacted(record.getMessage()), "yellow")


def order(number: int) -> headrace.NewEvent:
    """What somebody has ordered."""
    items = random.randint(1, 5)
    tags = [random.choice(["web", "app", "phone"]), *(["priority-high"] if items == 5 else [])]
    customer = f"customer-{random.randint(1, 50)}"
    payload = {"number": number, "items": items, "customer": customer}
    return headrace.NewEvent("order.created", payload, tags=tags, key=customer)


def spark(values: list[int]) -> str:
    """Numbers as a row of bars."""
    top = max([*values, 1])
    return "".join(BARS[value * (len(BARS) - 1) // top] for value in values)


def run(where: Source, seconds: float | None, url: str) -> None:
    """Show it until somebody has seen enough."""
    console = Console()
    stop = threading.Event()
    with stop_on_signals(stop), headrace.connect(where.dsn) as queue, second(where, queue) as audit:
        show = Demonstration(where, queue, audit, url)
        logger = logging.getLogger("headrace")
        teller = Teller(show)
        logger.addHandler(teller)
        try:
            for place in range(1, WORKERS + 1):
                show.hire(place)
            if console.is_terminal:
                with Live(
                    console=console, refresh_per_second=8, screen=False, get_renderable=show.picture
                ):
                    play(show, stop, seconds)
            else:
                console.print(f"Headrace is up: {where.name}. Ctrl-C stops it.")
                console.print(f"The dashboard: {url}")
                console.print(suggestions(url, where.data), soft_wrap=True)
                play(show, stop, seconds, console)
        finally:
            logger.removeHandler(teller)
            dismiss(show)
    console.print("Stopped. What is left in the queue is there at the next start.")


def second(where: Source, queue: headrace.EventQueue) -> headrace.EventQueue:
    """A queue beside the first one, which gets the payments too."""
    queue.create_queue("audit", types=["payment.*"])
    return headrace.connect(where.dsn, queue="audit", worker="auditor", pool_size=1)


def play(
    show: Demonstration,
    stop: threading.Event,
    seconds: float | None,
    console: Console | None = None,
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
            if console is not None:
                narrate(show, console)
        if time.monotonic() >= next_kill:
            show.kill()
            next_kill = time.monotonic() + PAUSE
        if seconds is not None and time.monotonic() - started >= seconds:
            return


def narrate(show: Demonstration, console: Console) -> None:
    """Without a terminal: a line of figures a second, and the story as it happens."""
    stats = show.stats
    with show.changed:
        while show.story:
            console.print(show.story.popleft())
    console.print(
        f"ready {stats.ready}  in work {stats.processing}  delayed {stats.delayed}  "
        f"dead {stats.dead_letters}  completed {show.counts['completed']}"
    )


def dismiss(show: Demonstration) -> None:
    """Let every worker hand back what it has not begun, and go; a second signal does not wait for that."""
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
