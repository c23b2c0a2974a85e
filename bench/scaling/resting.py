"""What costs something though nothing happens: being idle, and starting."""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from bench.cases.http import SERVE
from bench.http import Process
from bench.machine import machine
from bench.measure import Meter, cpu_of
from bench.scaling.figure import Case, Notes, Setting
from bench.scaling.programs import Program
from bench.server import Server
from headrace.embedded import EmbeddedPostgres
from headrace.install.migrate import migrate

HEADRACE = SERVE[:2]
STATEMENT = re.compile(rb"LOG:  (?:statement|execute|fastpath)")
ROUNDS = 9
PROGRAMS = {
    "python -c pass": ("-c", "pass"),
    "import headrace": ("-c", "import headrace"),
    "… and its client": ("-c", "import headrace; headrace.connect"),
    "… and its nodes": ("-c", "import headrace; headrace.Node"),
    "headrace --help": (*HEADRACE, "--help"),
}


def cases() -> list[Case]:
    return [
        Case("idle", "Idleness", "", idle),
        Case("start", "Start-up", "", start),
    ]


def idle(setting: Setting, notes: Notes) -> dict[str, Any]:
    """In a server of its own, whatever is given: its log is where queries are counted."""
    seconds = setting.choose(180, 10)
    with _folder() as folder:
        with _postgres(folder) as (postgres, server):
            _rest(notes, "PostgreSQL alone", postgres, seconds, lambda: 0.0)
            with Program("ours", postgres.dsn, "work", "async") as node:
                node.hear("ready")
                node.tell("go")
                node.hear("started")
                _rest(notes, "a node", postgres, seconds, lambda: node.cpu)
            with Process(*SERVE, postgres.dsn) as process:
                _rest(notes, "headrace serve", postgres, seconds, lambda: cpu_of(process.pid))
            measured_on = machine(server)
        with _up(folder) as process, EmbeddedPostgres(folder) as postgres:
            _rest(notes, "headrace up", postgres, seconds, lambda: cpu_of(process.pid))
        return measured_on


def _rest(
    notes: Notes, name: str, postgres: EmbeddedPostgres, seconds: float, cpu: Callable[[], float]
) -> None:
    time.sleep(min(seconds, 15))  # a start is no rest
    with closing(Meter(postgres.dsn)) as meter:
        before, read = meter.read(cpu), postgres.log.stat().st_size
        time.sleep(seconds)
        with postgres.log.open("rb") as log:
            log.seek(read)
            queries = len(STATEMENT.findall(log.read()))
        after = meter.read(cpu)
    assert before.server_cpu is not None
    assert after.server_cpu is not None
    notes.note(
        name,
        0,
        queries_an_hour=queries * 3600 / seconds,
        server_cpu_percent=(after.server_cpu - before.server_cpu) / seconds * 100,
        client_cpu_percent=(after.client_cpu - before.client_cpu) / seconds * 100,
    )


def start(setting: Setting, notes: Notes) -> dict[str, Any]:
    with _folder() as folder, _postgres(folder) as (_, server):
        measured_on = machine(server)
        for number in range(setting.choose(ROUNDS, 3) + 1):
            for name, arguments in PROGRAMS.items():
                took = _start(arguments)
                if number:  # the first reads files that nobody has read yet
                    notes.note(name, 0, **took)
    with _folder() as folder:
        for number in range(setting.choose(ROUNDS, 3) + 1):
            began = time.perf_counter()
            with _up(folder) as process:
                urllib.request.urlopen(f"http://127.0.0.1:{process.port}/healthz").close()
                took = time.perf_counter() - began
            name = (
                "headrace up, where there is a data folder"
                if number
                else "headrace up, the first time"
            )
            notes.note(f"{name}, until it answers", 0, ms=took * 1e3)
    return measured_on


def _start(arguments: Sequence[str]) -> dict[str, float]:
    began, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = now.ru_utime - used.ru_utime + now.ru_stime - used.ru_stime
    return {"ms": (time.perf_counter() - began) * 1e3, "cpu_ms": cpu * 1e3}


def _up(folder: Path) -> Process:
    return Process(*HEADRACE, "up", "--port", "0", "--data", str(folder))


@contextmanager
def _folder() -> Iterator[Path]:
    parent = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    parent.chmod(0o755)  # PostgreSQL does not run as root, and another user must get in
    try:
        yield parent / "data"
    finally:
        shutil.rmtree(parent, ignore_errors=True)


@contextmanager
def _postgres(folder: Path) -> Iterator[tuple[EmbeddedPostgres, Server]]:
    """With the schema, and every statement in its log, for whoever starts it next, too."""
    with EmbeddedPostgres(folder) as postgres:
        with psycopg.connect(postgres.dsn, autocommit=True) as connection:
            migrate(connection)
            connection.execute("alter system set log_statement = 'all'")
            connection.execute("select pg_reload_conf()")
        with closing(Server(postgres.dsn, folder.parent)) as server:
            yield postgres, server
