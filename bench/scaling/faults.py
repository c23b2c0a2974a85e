"""How soon events are handled while connections are lost, and after PostgreSQL was away."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg

from bench import peers
from bench.machine import machine
from bench.scaling.figure import Case, Notes, Setting
from bench.scaling.histogram import Histogram
from bench.scaling.load import AS_IT_RUNS
from bench.scaling.programs import Program
from bench.server import Server
from headrace.embedded import EmbeddedPostgres

ROUNDS = 3
EVERY = 0.5  # seconds between two back ends that are terminated
AWAY = 10.0  # seconds without PostgreSQL
SLOWER, BACK = 3.0, 1.0  # the goals: times p99 of undisturbed, seconds

ONE_OF_THEM = """
select pg_terminate_backend(pid) from pg_stat_activity
where datname = current_database() and application_name = 'bench' order by random() limit 1"""


def cases() -> list[Case]:
    return [Case("faults", "Lost connections", "", faults)]


def faults(setting: Setting, notes: Notes) -> dict[str, Any]:
    """On a server of its own: it is stopped."""
    seconds = setting.choose(30, 8)
    systems = ["headrace", *(["pgmq"] if peers.has_pgmq() else [])]
    back: dict[str, list[float]] = {who: [] for who in systems}
    with _stoppable() as (postgres, server):
        for _ in range(setting.choose(ROUNDS, 1)):
            for who in systems:
                with server.database() as dsn, _at_work(who, dsn) as node:
                    _note(notes, f"{who}, undisturbed", node, lambda: time.sleep(seconds))
                    _note(notes, f"{who}, back ends terminated", node, _terminating(dsn, seconds))
                    back[who].append(_restarted(postgres, server, node))
                    notes.note(f"{who}, PostgreSQL away", 0, late_ms=back[who][-1] * 1e3)
        measured_on = machine(server)
    for who in systems:
        quiet, hit = (
            notes.medians(f"{who}, {how}", "p99_ms")[0]
            for how in ("undisturbed", "back ends terminated")
        )
        notes.find(
            f"{who}: p99 from publish to handler while {1 / EVERY:g} back ends a second are terminated",
            f"{hit:.0f} ms, {hit / quiet:.1f} × of undisturbed",
            hit <= SLOWER * quiet if who == "headrace" else None,
        )
        worst = max(back[who])
        notes.find(
            f"{who}: from the return of PostgreSQL after {AWAY:g} s to the first event handled",
            f"{worst:.2f} s at most",
            worst <= BACK if who == "headrace" else None,
        )
    return measured_on


@contextmanager
def _at_work(who: str, dsn: str) -> Iterator[Program]:
    with (
        Program("faulted", dsn, who, "work") as node,
        Program("faulted", dsn, who, "publish") as by,
    ):
        for program in (node, by):
            program.hear("ready")
            program.tell("go")
            program.hear("started")
        time.sleep(2)
        node.heard("handled")
        yield node


def _note(notes: Notes, series: str, node: Program, pass_time: Callable[[], None]) -> None:
    node.heard("handled")
    pass_time()
    took = Histogram()
    for line in node.heard("handled"):
        took.merge(json.loads(line))
    middle, most = took.percentile(50), took.percentile(99)
    assert middle is not None
    assert most is not None
    notes.note(series, 0, p50_ms=middle * 1e3, p99_ms=most * 1e3)


def _terminating(dsn: str, seconds: float) -> Callable[[], None]:
    def terminate() -> None:
        with psycopg.connect(dsn, autocommit=True) as admin:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                admin.execute(ONE_OF_THEM)
                time.sleep(random.uniform(0.5, 1.5) * EVERY)

    return terminate


def _restarted(postgres: EmbeddedPostgres, server: Server, node: Program) -> float:
    """Seconds from when it answers again until the node has handled something. To the tenth of one."""
    pid = int((Path(server.setting("data_directory")) / "postmaster.pid").read_text().split()[0])
    server.admin.close()
    os.kill(pid, signal.SIGINT)
    with suppress(ProcessLookupError):
        while os.kill(pid, 0) is None:
            time.sleep(0.01)
    time.sleep(AWAY)
    node.heard("handled")
    postgres.start()
    server.admin = psycopg.connect(server.dsn, autocommit=True)
    began = time.monotonic()
    while not json.loads(node.hear("handled")):
        pass
    return time.monotonic() - began


@contextmanager
def _stoppable() -> Iterator[tuple[EmbeddedPostgres, Server]]:
    folder = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    folder.chmod(0o755)  # PostgreSQL does not run as root, and another user must get in
    try:
        with (
            EmbeddedPostgres(folder / "data", settings=AS_IT_RUNS) as postgres,
            closing(Server(postgres.dsn, folder)) as server,
        ):
            yield postgres, server
    finally:
        shutil.rmtree(folder, ignore_errors=True)
