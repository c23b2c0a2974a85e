"""Processes that publish and handle, faults that happen to them, and the accounts after it."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg

from headrace.driver.session_state import BOUND
from headrace.engine.memory import TICK_EVERY
from tests.laboratory.accounting import LONGEST_CALL, Accounts, account
from tests.laboratory.house import House, eventually
from tests.laboratory.measuring import Bounds, Disturbances, measure
from tests.laboratory.secrecy import Secrets

ROOT = Path(__file__).parents[2]
HEADRACE = (sys.executable, "-c", "from headrace.cli import main; main()")
LEASE, IDLE, GRACE = 2.0, 0.5, 5.0
LOOKS = 0.5  # seconds between two looks at the process list
DRAIN = 400.0  # seconds for everything to come to an end, once nothing disturbs it any more
# More poison, and nodes would die of it faster than they start: there would be none to disturb.
KINDS = {"plain": 1000, "effect": 500, "retried": 240, "outbox": 259, "poison": 1}
BURSTS = [1, 1, 1, 10, 30]
UNREST = """
select e.type, d.suspect, d.lease is not null as claimed, d.due_at is not null as delayed, count(*), max(d.attempts)
from headrace.deliveries d join headrace.events e on e.id = d.event group by 1, 2, 3, 4
"""
NOBODY = object()


class Actor:
    """A process of ours; what it has written survives it."""

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], said: Path
    ) -> None:
        self.name = name
        with said.open("ab") as file:
            self.process = subprocess.Popen(
                command, env={**os.environ, **environment}, cwd=ROOT, stdout=file, stderr=file
            )
        self.thaw_at: float | None = None

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def freeze(self, seconds: float) -> None:
        self.process.send_signal(signal.SIGSTOP)
        self.thaw_at = time.monotonic() + seconds

    def thaw(self) -> None:
        self.thaw_at = None
        if self.is_alive:
            self.process.send_signal(signal.SIGCONT)

    def resident(self) -> int:
        try:
            text = Path(f"/proc/{self.process.pid}/statm").read_text()
        except OSError:
            return 0
        return int(text.split()[1]) * 4096


class Laboratory:
    """`dsn` is how the actors reach PostgreSQL, which may be through something that is in the way."""

    def __init__(self, house: House, folder: Path, seed: int, **options: Any) -> None:
        self.house = house
        self.folder = folder
        self.random = random.Random(seed)
        self.dsn: str = options.pop("dsn", house.way_in)
        self.prepare: bool = options.pop("prepare", True)
        self.url: str | None = options.pop("url", None)
        self.token: str = options.pop("token", "")
        self.clock_is_right: bool = options.pop("clock_is_right", True)
        self.poison: bool | str = options.pop("poison", True)
        self.ticking: bool = options.pop("ticking", True)
        self.longest: float = options.pop("longest", 0.05)
        self.lease: float = options.pop("lease", LEASE)
        self.drain: float = options.pop("drain", DRAIN)
        self.timeout: float = options.pop("timeout", BOUND)
        self.longest_call: float = options.pop("longest_call", LONGEST_CALL)
        # By whose names they are counted, and what is theirs alone: `dsn`, and options.
        self.ways: list[tuple[str, dict[str, Any]]] = options.pop("ways", [("publisher", {})])
        self.node_dsns: list[str] = options.pop("node_dsns", [self.dsn])
        self.node_options: dict[str, Any] = options.pop("node", {})
        self.publisher_options: dict[str, Any] = options.pop("publisher", {})
        self.environment: Callable[[random.Random], dict[str, str]] = options.pop(
            "environment", lambda chance: {}
        )
        assert not options, options
        self.nodes: list[Actor] = []
        self.publishers: list[Actor] = []
        self.counts: dict[str, int] = {}
        self.disturbances = Disturbances(folder)
        self._secrets = Secrets(house.password, *filter(None, [self.token]))
        self._looked_at = 0.0
        self._most_resident = 0
        self._killed: set[str] = set()
        self._started = 0
        self._wanted = (0, 0)
        self._closed = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def staff(self, nodes: int, publishers: int) -> None:
        """So many there shall be, whoever dies; when this returns they are at work."""
        self._wanted = (nodes, publishers)
        self.replace()
        eventually(lambda: all(map(self._has_begun, self.nodes)), DRAIN)
        if self.ticking:
            self._ticker.start()

    def _has_begun(self, node: Actor) -> bool:
        begun = (self.folder / f"{node.name}.notes").exists()
        if not begun and not node.is_alive:
            said = (self.folder / f"{node.name}.log").read_text()
            raise RuntimeError(f"{node.name} ended before it began: {said[-500:]}")
        return begun

    def _tick(self) -> None:
        """Every second, as a server does, or pg_cron: who can claim what a dead node had is to be seen also when no
        node is alive just then."""
        due = time.monotonic()
        while not self._closed.wait(max(0.0, due - time.monotonic())):
            due = max(due + TICK_EVERY, time.monotonic())
            with suppress(psycopg.Error):
                self.house.tick()

    def replace(self) -> None:
        self.nodes = [one for one in self.nodes if one.is_alive]
        self.publishers = [one for one in self.publishers if one.is_alive]
        nodes, publishers = self._wanted
        while len(self.nodes) < nodes:
            self.nodes.append(self._start_node())
        while len(self.publishers) < publishers:
            self.publishers.append(self._start_publisher())
        for actor in [*self.nodes, *self.publishers]:
            if actor.thaw_at is not None and actor.thaw_at <= time.monotonic():
                actor.thaw()

    def _start_node(self) -> Actor:
        self._started += 1
        name = f"node-{self._started}"
        its = {
            "node_id": name,
            "migrate": False,
            "prepare": self.prepare,
            "lease": self.lease,
            "idle": IDLE,
            "grace": GRACE,
            "concurrency": 20,
            "timeout": self.timeout,
            **self.node_options,
        }
        options = {
            "notes": str(self.folder / f"{name}.notes"),
            "longest": self.longest,
            "poison": self.poison,
            "node": its,
        }
        target = "tests.laboratory.handling:node"
        dsn = self.node_dsns[self._started % len(self.node_dsns)]
        return self._start(name, [*HEADRACE, "worker", target, "--json-logs"], options, dsn)

    def _start_publisher(self) -> Actor:
        self._started += 1
        way, its = self.ways[self._started % len(self.ways)]
        name = f"{way}-{self._started}"
        options = {
            "ledger": str(self.folder / f"{name}.ledger"),
            "name": name,
            "seed": self.random.randrange(2**32),
            "kinds": KINDS,
            "bursts": BURSTS,
            "pause": 0.002,
            "url": self.url,
            "prepare": self.prepare,
            "poison": self.poison,
            "timeout": self.timeout,
            **self.publisher_options,
            **its,
        }
        dsn = options.pop("dsn", self.dsn)
        return self._start(
            name, [sys.executable, "-m", "tests.laboratory.publishing"], options, dsn
        )

    def _start(self, name: str, command: list[str], options: dict[str, Any], dsn: str) -> Actor:
        """What is secret it is told by its environment, which only its user can read."""
        environment = {
            "LABORATORY": json.dumps(options),
            "HEADRACE_DSN": dsn,
            "HEADRACE_TOKEN": self.token,
            **self.environment(self.random),
        }
        return Actor(name, command, environment, self.folder / f"{name}.log")

    def kill(self, actor: Actor) -> None:
        self.disturbances.struck(actor.name)
        actor.kill()
        self._killed.add(actor.name)

    def freeze(self, actor: Actor, seconds: float) -> None:
        self.disturbances.struck(actor.name)
        actor.freeze(seconds)

    def victim(self) -> Actor | None:
        """A node that has begun something just now, or at all: to disturb one that waits shows little. None: there would be
        nobody left who works."""
        just_now = time.time() - self.longest
        begun = {node: self._began_last(node) for node in self.nodes if node.thaw_at is None}
        able = [node for node, at in begun.items() if at > 0]
        busy = [node for node in able if begun[node] > just_now]
        return self.random.choice(busy or able) if len(able) > 1 else None

    def _began_last(self, node: Actor) -> float:
        """When it began something last; 0: it never has."""
        notes = self.folder / f"{node.name}.notes"
        return notes.stat().st_mtime if notes.exists() and notes.stat().st_size else 0

    def did(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def endure(self, seconds: float, *faults: "Fault") -> None:
        """Let these happen for a while, each in its own time, and whoever dies be replaced."""
        until = time.monotonic() + seconds
        self.endure_until(lambda: time.monotonic() >= until, *faults)

    def endure_until(self, is_over: Callable[[], bool], *faults: "Fault") -> None:
        due = {
            fault: time.monotonic() + self.random.uniform(0.5, 1) * fault.every for fault in faults
        }
        while not is_over():
            self.replace()
            self._look()
            for fault, at in due.items():
                if at <= time.monotonic():
                    if fault.strike(self) is not NOBODY:
                        self.did(fault.name)
                    due[fault] = time.monotonic() + self.random.uniform(0.5, 1.5) * fault.every
            time.sleep(0.02)

    def _look(self) -> None:
        """At what can be seen only while it is there."""
        if time.monotonic() < self._looked_at + LOOKS:
            return
        self._looked_at = time.monotonic()
        self._secrets.look_at_processes()
        self._most_resident = max([self._most_resident, *(n.resident() for n in self.nodes)])

    def settle(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Publishers find out what they do not know, and everything that is published comes to its end."""
        for actor in [*self.nodes, *self.publishers]:
            actor.thaw()
        nodes, _ = self._wanted
        self._wanted = (nodes, 0)
        for publisher in self.publishers:
            publisher.process.send_signal(signal.SIGTERM)
        eventually(lambda: not any(one.is_alive for one in self.publishers), DRAIN)

        def is_at_rest() -> bool:
            self.replace()
            self._look()
            meanwhile()
            [(at_rest,)] = self.house.sql(
                "select not exists (select from headrace.deliveries)"
                " and not exists (select from headrace.leases)"
            )
            return bool(at_rest)

        try:
            eventually(is_at_rest, self.drain)
        except TimeoutError:
            raise TimeoutError(f"it did not come to rest: {self.house.sql(UNREST)}") from None
        eventually(self._all_are_registered)  # who has not begun yet does not know what to do
        for node in self.nodes:
            node.process.send_signal(signal.SIGTERM)
        for node in self.nodes:
            assert node.process.wait(60) == 0, "a node did not end in good order"

    def _all_are_registered(self) -> bool:
        self.replace()
        known = {id for (id,) in self.house.sql("select node_id from headrace.nodes('default')")}
        return {node.name for node in self.nodes} <= known

    def account(self) -> Accounts:
        accounts = account(self.house, self.folder, self._killed, self.longest_call)
        free = self.lease + TICK_EVERY
        bounds = Bounds(free, free + IDLE, self.clock_is_right)
        measure(accounts, self.house, self.folder, self.disturbances, bounds)
        self._secrets.look_at_files([*self.folder.iterdir(), *self.house.logs])
        self._secrets.look_at_tables(self.house)
        accounts.must_not_be("places with a secret in them", self._secrets.seen)
        accounts.figures |= {
            "nodes started": sum(1 for _ in self.folder.glob("*.notes")),
            "most resident memory of a node, MB": round(self._most_resident / 1e6),
            "load of the machine, five minutes": round(os.getloadavg()[1], 1),
            **self.counts,
        }
        return accounts

    def discard(self) -> None:
        self._closed.set()
        if self._ticker.is_alive():
            self._ticker.join(30)
        for actor in [*self.nodes, *self.publishers]:
            if actor.is_alive:
                actor.kill()


@contextmanager
def laboratory(house: House, folder: Path, seed: int, **options: Any) -> Iterator[Laboratory]:
    made = Laboratory(house, folder, seed, **options)
    try:
        yield made
    finally:
        made.discard()


class Fault:
    """Something that happens again and again, about so many seconds apart; unless there is nobody to strike."""

    def __init__(self, name: str, every: float, strike: Callable[[Laboratory], object]) -> None:
        self.name = name
        self.every = every
        self.strike = strike
