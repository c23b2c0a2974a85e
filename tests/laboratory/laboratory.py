"""Processes that publish and handle, faults that happen to them, and the accounts after it."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.laboratory.accounting import Accounts, account
from tests.laboratory.house import House, eventually

PROGRAMS = Path(__file__).parent
LEASE, IDLE, GRACE = 2.0, 0.5, 5.0
DRAIN = 180.0  # seconds for everything to come to an end, once nothing disturbs it any more


class Actor:
    """A process of ours; what it has written survives it."""

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], said: Path
    ) -> None:
        self.name = name
        with said.open("wb") as file:
            self.process = subprocess.Popen(
                command, env={**os.environ, **environment}, stdout=file, stderr=file
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
        self.dsn: str = options.pop("dsn", house.dsn)
        self.prepare: bool = options.pop("prepare", True)
        self.url: str | None = options.pop("url", None)
        self.poison: bool = options.pop("poison", True)
        self.longest: float = options.pop("longest", 0.05)
        self.lease: float = options.pop("lease", LEASE)
        self.node_options: dict[str, Any] = options.pop("node", {})
        self.environment: Callable[[random.Random], dict[str, str]] = options.pop(
            "environment", lambda chance: {}
        )
        assert not options, options
        self.nodes: list[Actor] = []
        self.publishers: list[Actor] = []
        self.counts: dict[str, int] = {}
        self._killed: set[str] = set()
        self._started = 0
        self._wanted = (0, 0)

    def staff(self, nodes: int, publishers: int) -> None:
        """So many there shall be, whoever dies; when this returns they are at work."""
        self._wanted = (nodes, publishers)
        self.replace()
        eventually(lambda: all((self.folder / f"{one.name}.notes").exists() for one in self.nodes))

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
            "dsn": self.dsn,
            "migrate": False,
            "prepare": self.prepare,
            "lease": self.lease,
            "idle": IDLE,
            "grace": GRACE,
            "concurrency": 20,
            **self.node_options,
        }
        options = {
            "notes": str(self.folder / f"{name}.notes"),
            "log": str(self.folder / f"{name}.log"),
            "longest": self.longest,
            "node": its,
        }
        return self._start(name, "handling.py", options)

    def _start_publisher(self) -> Actor:
        self._started += 1
        name = f"publisher-{self._started}"
        options = {
            "ledger": str(self.folder / f"{name}.ledger"),
            "name": name,
            "seed": self.random.randrange(2**32),
            "pause": 0.002,
            "dsn": self.dsn,
            "url": self.url,
            "prepare": self.prepare,
            "poison": self.poison,
        }
        return self._start(name, "publishing.py", options)

    def _start(self, name: str, program: str, options: dict[str, Any]) -> Actor:
        command = [sys.executable, str(PROGRAMS / program), json.dumps(options)]
        said = self.folder / f"{name}.err"
        return Actor(name, command, self.environment(self.random), said)

    def kill(self, actor: Actor) -> None:
        actor.kill()
        self._killed.add(actor.name)

    def at_work(self) -> list[Actor]:
        """The nodes that have begun something just now: to disturb one that waits shows little."""
        just_now = time.time() - self.longest
        files = {node: self.folder / f"{node.name}.notes" for node in self.nodes}
        busy = [n for n, file in files.items() if file.exists() and file.stat().st_mtime > just_now]
        return busy or self.nodes

    def did(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def endure(self, seconds: float, *faults: "Fault") -> None:
        """Let these happen for a while, each in its own time, and whoever dies be replaced."""
        until = time.monotonic() + seconds
        due = {
            fault: time.monotonic() + self.random.uniform(0.5, 1) * fault.every for fault in faults
        }
        while time.monotonic() < until:
            self.replace()
            for fault, at in due.items():
                if at <= time.monotonic():
                    fault.strike(self)
                    self.did(fault.name)
                    due[fault] = time.monotonic() + self.random.uniform(0.5, 1.5) * fault.every
            time.sleep(0.02)

    def settle(self) -> None:
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
            [(at_rest,)] = self.house.sql(
                "select not exists (select from headrace.deliveries)"
                " and not exists (select from headrace.leases)"
            )
            return bool(at_rest)

        eventually(is_at_rest, DRAIN)
        self.resident = max((node.resident() for node in self.nodes), default=0)
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
        accounts = account(self.house, self.folder, self._killed)
        accounts.figures |= {
            "nodes started": sum(1 for _ in self.folder.glob("*.notes")),
            "resident memory of a node, MB": round(self.resident / 1e6),
            **self.counts,
        }
        return accounts

    def discard(self) -> None:
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
    """Something that happens again and again, about so many seconds apart."""

    def __init__(self, name: str, every: float, strike: Callable[[Laboratory], object]) -> None:
        self.name = name
        self.every = every
        self.strike = strike
