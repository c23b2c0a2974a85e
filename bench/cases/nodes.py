"""Drain a queue with real worker processes, each peer in its own environment at its best documented settings.

Time runs from the first handler of any process to the moment when the database shows nothing unfinished.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time

from psycopg.conninfo import conninfo_to_dict

from bench import peers
from bench.measure import Contender, Watch, cpu_of
from bench.peers import Peer
from bench.programs import PATIENCE, Program, complaint, first_heard

LOOK_EVERY = 0.004  # seconds between two looks whether all is done, at least
LOOKING = 10  # and as many times what a look takes, so that looking is no load


def drain_contenders(dsn: str, processes: int) -> list[Contender]:
    return [Workers(dsn, peer, processes) for peer in peers.workers(dsn)]


def in_and_out_contenders(dsn: str) -> list[Contender]:
    return [InAndOut(dsn, peer, 1) for peer in peers.workers(dsn)]


def publishers(dsn: str, how: str) -> list[Contender]:
    """Those of the others that publish from processes of their own."""
    return [Publish(dsn, peer, how) for peer in peers.others(dsn)]


def kinds(dsn: str) -> list[Contender]:
    ours = peers.OURS
    return [
        Workers(dsn, ours, 1, how, name)
        for how, name in (("plain", "headrace"), ("async", "async handlers"))
    ]


def transactional_contenders(dsn: str) -> list[Contender]:
    return [
        Workers(dsn, peer, 1, "transactional")
        for peer in peers.workers(dsn)
        if peer in (peers.OURS, peers.FLOOR_WORKER)
    ]


class Workers(Contender):
    """Some processes of one peer, started anew for every turn."""

    look_every = LOOK_EVERY
    patience = PATIENCE

    def __init__(
        self, dsn: str, peer: Peer, processes: int, how: str = "async", name: str | None = None
    ) -> None:
        super().__init__(dsn)
        self.name = name or peer.name
        self.tables = peer.tables
        self.share = peer.share
        self._peer = peer
        self._count = processes
        self._how = how
        self._environment = {**os.environ, **environment(dsn), **peer.variables}
        self._programs: list[Program] = []
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the contender)

    def setup(self) -> None:
        if self._count > 1 and self._peer.alone is not None:
            raise RuntimeError(self._peer.alone)
        self._run("setup")

    def prepare(self, events: int) -> None:
        self._run("fill", str(events))
        self._start()

    def run(self, events: int, watch: Watch) -> None:
        self._go()
        watch.start_at(float(first_heard(self._programs, "first")[0]))
        self._wait_until_empty()
        watch.stop()

    def client_cpu(self) -> float:
        return sum(cpu_of(program.pid) for program in self._programs)

    def settle(self) -> None:
        self._stop()

    def close(self) -> None:
        self._stop()
        self._complaints.close()
        super().close()

    def start(self) -> None:
        """Put the workers to work, and wait until they are."""
        self._start()
        self._go()
        self.heard("started")

    def feed(self, events: int) -> None:
        """Give workers that work so much more to do, and wait until it is done."""
        self._run("fill", str(events))
        self._wait_until_empty()

    def heard(self, word: str) -> str:
        return self._programs[0].heard(word)[0]

    def _start(self) -> None:
        self._launch("work", self._how)

    def _launch(self, *arguments: str) -> None:
        self._programs = [self._program(*arguments) for _ in range(self._count)]
        for program in self._programs:
            program.heard("ready")

    def _program(self, *arguments: str) -> Program:
        command = [*self._peer.command, *arguments]
        return Program(self.name, command, self._environment, self._complaints)

    def _go(self) -> None:
        for program in self._programs:
            program.say("go")

    def _wait_until_empty(self) -> None:
        deadline = time.monotonic() + self.patience
        while True:
            looked = time.monotonic()
            if self.admin.execute(self._peer.unfinished).fetchone() == (False,):
                return
            took = time.monotonic() - looked
            if looked > deadline:
                raise RuntimeError(f"{self.name}: the queue is not empty after {self.patience:g} s")
            time.sleep(max(self.look_every, took * LOOKING))

    def _stop(self) -> None:
        for program in self._programs:
            program.stop()
        self._programs = []

    def _run(self, *arguments: str) -> None:
        command = [*self._peer.command, *arguments]
        done = subprocess.run(
            command, env=self._environment, stderr=self._complaints, timeout=self.patience
        )
        if done.returncode:
            said = complaint(self._complaints)
            raise RuntimeError(f"{self.name}: {' '.join(arguments)} failed{said}")


class InAndOut(Workers):
    """Publishes while it drains: from the first event that is handled to the end of the last."""

    def prepare(self, events: int) -> None:
        self._start()
        self._go()

    def run(self, events: int, watch: Watch) -> None:
        filling = subprocess.Popen(
            [*self._peer.command, "fill", str(events)],
            env=self._environment,
            stderr=self._complaints,
        )
        try:
            watch.start_at(float(first_heard(self._programs, "first")[0]))
            if filling.wait(self.patience):
                raise RuntimeError(f"{self.name}: publishing failed{complaint(self._complaints)}")
        finally:
            filling.kill()
            filling.wait()
        self._wait_until_empty()
        watch.stop()


class Publish(Workers):
    """Publishes from a process of its own, which lasts from turn to turn, as connections do; what was published stays."""

    def __init__(self, dsn: str, peer: Peer, how: str) -> None:
        super().__init__(dsn, peer, 1, how)
        self.tables = ()
        if how == "single":
            self.share = 1  # a commit each is slow for everybody

    def setup(self) -> None:
        super().setup()
        self.start()

    def start(self) -> None:
        self._launch("publish", self._how)

    def prepare(self, events: int) -> None:
        self._programs[0].say(str(events))
        self._programs[0].heard("prepared")

    def run(self, events: int, watch: Watch) -> None:
        began, done = self.publish()
        watch.start_at(began)
        watch.stop_at(done)

    def publish(self) -> tuple[float, float]:
        """What was prepared; from when to when, by the monotonic clock."""
        self._go()
        began, done = self._programs[0].heard("published")
        return float(began), float(done)

    def settle(self) -> None:
        """It goes on."""


def environment(dsn: str) -> dict[str, str]:
    """A DSN as the variables that every client of PostgreSQL knows."""
    names = {"host": "PGHOST", "port": "PGPORT", "dbname": "PGDATABASE", "user": "PGUSER"}
    known = conninfo_to_dict(dsn)
    return {name: str(known[key]) for key, name in names.items() if known.get(key)} | (
        {"PGPASSWORD": str(known["password"])} if known.get("password") else {}
    )
