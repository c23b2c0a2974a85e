"""Drain a queue with real worker processes, each peer in its own environment at its best documented settings.

Time runs from the first handler of any process to the moment when the database shows nothing unfinished.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import tempfile
import time

from psycopg.conninfo import conninfo_to_dict

from bench import peers
from bench.measure import Contender, Watch, cpu_of
from bench.peers import Peer

LOOK_EVERY = 0.004  # seconds between two looks whether all is done
PATIENCE = 300.0


def drain_contenders(dsn: str, processes: int, how: str = "async") -> list[Contender]:
    return [Workers(dsn, peer, processes, how) for peer in peers.workers()]


def in_and_out_contenders(dsn: str) -> list[Contender]:
    return [InAndOut(dsn, peer, 1) for peer in peers.workers()]


def kinds(dsn: str) -> list[Contender]:
    ours = peers.OURS
    return [
        Workers(dsn, ours, 1, how, name)
        for how, name in (("plain", "headrace"), ("async", "async handlers"))
    ]


def transactional_contenders(dsn: str) -> list[Contender]:
    return [
        Workers(dsn, peer, 1, "transactional")
        for peer in peers.workers()
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
        self._processes: list[subprocess.Popen[str]] = []
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the contender)
        self._run("setup")

    def prepare(self, events: int) -> None:
        self._run("fill", str(events))
        self._start()

    def run(self, events: int, watch: Watch) -> None:
        self._go()
        watch.start_at(self._first())
        self._wait_until_empty()
        watch.stop()

    def client_cpu(self) -> float:
        return sum(cpu_of(process.pid) for process in self._processes)

    def vacuum(self) -> None:
        self._stop()
        super().vacuum()

    def close(self) -> None:
        self._stop()
        self._complaints.close()
        super().close()

    def start(self) -> None:
        """Put the workers to work, and wait until they are."""
        self._start()
        self._go()
        self.heard("started")

    def heard(self, word: str) -> str:
        return self._heard(self._processes[0], word)[0]

    def _start(self) -> None:
        self._processes = [
            subprocess.Popen(
                [*self._peer.command, "work", self._how],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._complaints,
                text=True,
            )
            for _ in range(self._count)
        ]
        for process in self._processes:
            self._heard(process, "ready")

    def _go(self) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()

    def _heard(self, process: subprocess.Popen[str], word: str) -> list[str]:
        assert process.stdout is not None
        for line in process.stdout:
            first, *rest = line.split()
            if first == word:
                return rest
        raise RuntimeError(
            f"{self.name}: a worker ended before it said {word!r}{self._complained()}"
        )

    def _first(self) -> float:
        """When the first event was handled, by whichever process: one may get none."""
        with selectors.DefaultSelector() as said:
            for process in self._processes:
                assert process.stdout is not None
                said.register(process.stdout, selectors.EVENT_READ, process)
            ((key, _), *_) = said.select(PATIENCE)
        return float(self._heard(key.data, "first")[0])

    def _wait_until_empty(self) -> None:
        deadline = time.monotonic() + self.patience
        while self.admin.execute(self._peer.unfinished).fetchone() != (False,):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name}: the queue is not empty after {self.patience:g} s")
            time.sleep(self.look_every)

    def _stop(self) -> None:
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self._processes = []

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(
            [*self._peer.command, *arguments], env=self._environment, stderr=self._complaints
        )
        if done.returncode:
            raise RuntimeError(f"{self.name}: {' '.join(arguments)} failed{self._complained()}")

    def _complained(self) -> str:
        self._complaints.seek(0)
        return f"\n{self._complaints.read().decode(errors='replace')[-2000:]}"


class InAndOut(Workers):
    """Publishes while it drains: from the first publish to the end of the last event."""

    def prepare(self, events: int) -> None:
        self._start()
        self._go()

    def run(self, events: int, watch: Watch) -> None:
        filling = subprocess.Popen(
            [*self._peer.command, "fill", str(events)],
            env=self._environment,
            stderr=self._complaints,
        )
        watch.start_at(self._first())
        if filling.wait(PATIENCE):
            raise RuntimeError(f"{self.name}: publishing failed")
        self._wait_until_empty()
        watch.stop()


def environment(dsn: str) -> dict[str, str]:
    """A DSN as the variables that every client of PostgreSQL knows."""
    names = {"host": "PGHOST", "port": "PGPORT", "dbname": "PGDATABASE", "user": "PGUSER"}
    known = conninfo_to_dict(dsn)
    return {name: str(known[key]) for key, name in names.items() if known.get(key)} | (
        {"PGPASSWORD": str(known["password"])} if known.get("password") else {}
    )
