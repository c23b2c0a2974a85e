"""Servers that import an application and then fork their workers: gunicorn with --preload, Celery with its prefork pool."""

import ast
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.database import Database
from tests.folders import short_folder

pytestmark = pytest.mark.one_database("how a client reaches one server")

ROOT = Path(__file__).parents[2]
REQUESTS = 60


@pytest.fixture
def folder(db: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("HEADRACE_DSN", db.dsn)
    with short_folder() as folder:
        for name in ("tasks", "results", "control"):
            (folder / name).mkdir()
        monkeypatch.setenv("TASKS", str(folder))
        yield folder


@contextmanager
def program(folder: Path, *arguments: str) -> Iterator[None]:
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", *arguments],
            cwd=ROOT,
            env={**os.environ, "C_FORCE_ROOT": "1"},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:  # what its processes wait for does not come
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise


def check(db: Database, told: dict[str, dict[str, Any]]) -> None:
    """Each publisher was told of its own event, and is a process that was forked after the module had connected."""
    assert {payload: one["stored"] for payload, one in told.items()} == {p: p for p in told}
    stored = db.sql("select e.payload #>> '{}', e.id from headrace.events e where type = 'a'")
    assert {payload: one["id"] for payload, one in told.items()} == dict(stored)
    [(parent,)] = db.sql(
        "select (payload #>> '{}')::int from headrace.events where type = 'imported'"
    )
    assert parent not in processes(told)


def processes(told: dict[str, dict[str, Any]]) -> set[int]:
    return {one["process"] for one in told.values()}


def test_workers_of_gunicorn_share_no_connection(db: Database, folder: Path) -> None:
    pytest.importorskip("gunicorn")
    socket = folder / "socket"
    arguments = ["--preload", "--workers=3", f"--bind=unix:{socket}"]
    with program(folder, "gunicorn", *arguments, "tests.client.preloaded:application"):
        db.wait_for(socket.exists)
        transport = httpx.HTTPTransport(uds=str(socket), retries=5)
        with httpx.Client(transport=transport, timeout=60) as client, ThreadPoolExecutor(8) as some:

            def ask(payload: str) -> tuple[str, Any]:
                answered = client.get(f"http://here/{payload}")
                return payload, ast.literal_eval(answered.text)

            told: dict[str, Any] = {}
            while len(processes(told)) < 2:  # as soon as a second one has booted
                told |= some.map(ask, [f"{len(told) + n}" for n in range(REQUESTS)])
            check(db, told)


@pytest.mark.long
def test_processes_of_celery_share_no_connection(db: Database, folder: Path) -> None:
    pytest.importorskip("celery")
    options = ["--pool=prefork", "--concurrency=3", "--without-gossip", "--without-mingle"]
    calling = [sys.executable, "-W", "ignore", "-m", "tests.client.calling", str(REQUESTS)]
    with program(folder, "celery", "--app=tests.client.preloaded", "worker", *options):
        called = subprocess.run(calling, cwd=ROOT, capture_output=True, text=True, check=False)
        assert called.returncode == 0, called.stderr + (folder / "log").read_text()
        check(db, ast.literal_eval(called.stdout))
