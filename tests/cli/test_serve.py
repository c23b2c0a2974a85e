"""`headrace serve`, run as a user runs it; what is refused at once is refused in this process."""

import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from tests.cli.running import CommandLine
from tests.cli.test_commands import PATIENCE, command, environment, headrace
from tests.database import Database
from tests.folders import short_folder
from tests.requirements import requirement

SLEEPS = (
    "select exists (select from pg_locks where locktype = 'advisory' and mode = 'ShareLock' and"
    " database = (select oid from pg_database where datname = current_database()))"
)


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as made:
        yield made


@contextmanager
def serving(
    *arguments: str, folder: Path, **variables: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server, and its URL."""
    with subprocess.Popen(
        command("serve", *arguments),
        cwd=folder,
        env={**environment(), **variables},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        url = None
        while url is None:
            line = process.stdout.readline()
            assert line, "it ended by itself"
            url = re.search(r"http://\S+", line)
        try:
            yield process, url[0]
        finally:
            process.kill()


@requirement("G14")
def test_it_answers_until_it_is_told_to_stop(db: Database, folder: Path) -> None:
    with serving("--open", "--dsn", db.dsn, "--port", "0", folder=folder) as (process, url):
        assert httpx.post(f"{url}/events", json={"title": "Hello"}).status_code == 201
        line = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))
        with line:  # who waits for an event is answered before it ends
            path = "/events/subscribe?tags=none&worker_id=w:1&wait=20"
            line.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            db.wait_for(lambda: db.sql(SLEEPS) == [(True,)])
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert line.recv(1000).startswith(b"HTTP/1.1 204")
            assert process.wait(PATIENCE) == 0
        assert time.monotonic() - began < 18


@pytest.mark.parametrize("way", ["option", "variable"])
def test_how_long_a_claim_lasts_is_said_when_it_is_started(
    db: Database, folder: Path, way: str
) -> None:
    said = ("--lease", "20m") if way == "option" else ()
    variables = {"HEADRACE_LEASE": "20m"} if way == "variable" else {}
    started = serving("--open", "--dsn", db.dsn, "--port", "0", *said, folder=folder, **variables)
    with started as (_, url):
        assert httpx.post(f"{url}/events", json={"tags": "a"}).status_code == 201
        httpx.get(f"{url}/events/subscribe", params={"tags": "a", "worker_id": "w:1"})
    [held] = db.queue().events(status="PROCESSING").events
    assert held.lease_expires_at is not None
    assert held.processing_started_at is not None
    assert held.lease_expires_at - held.processing_started_at == timedelta(minutes=20)


@pytest.mark.parametrize("wrong", ["0s", "8d", "long"])
def test_a_lease_that_cannot_be_is_refused_in_a_sentence(cli: CommandLine, wrong: str) -> None:
    tried = cli.tried("serve", "--lease", wrong, "--port", "0")
    assert tried.code == 2
    assert wrong in tried.err


def test_a_database_without_the_schema_is_refused_in_a_sentence(
    empty_db: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    tried = CommandLine(empty_db, capsys).tried("serve", "--port", "0")
    assert tried.code == 1
    assert "migrate" in tried.err


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_nobody_is_served_without_a_token_unless_somebody_says_so(
    db: Database, cli: CommandLine, folder: Path, host: str
) -> None:
    arguments = ("serve", "--host", host, "--port", "0", "--for", "0.1")
    tried = cli.tried(*arguments)
    assert tried.code == 2
    for way in ("HEADRACE_TOKEN", "--token-file", "headrace tokens create", "--open"):
        assert way in tried.err
    shown = headrace(*arguments, "--dsn", db.dsn, "--open", folder=folder)
    assert shown.returncode == 0, shown.stderr
    assert "full access" in shown.stdout


def test_the_first_token_comes_from_a_file(db: Database, folder: Path) -> None:
    token = "0123456789abcdef0123456789abcdef"
    (folder / "token").write_text(f"{token}\n")
    with serving(*("--dsn", db.dsn, "--port", "0", "--token-file", "token"), folder=folder) as (
        _,
        url,
    ):
        assert httpx.get(f"{url}/events").status_code == 401
        answer = httpx.get(f"{url}/whoami", headers={"Authorization": f"Bearer {token}"})
        assert answer.json()["scopes"] == ["admin"]
    [stored] = db.queue().tokens()
    assert stored.name == "first"


def test_a_file_without_a_token_is_refused_in_a_sentence(cli: CommandLine, folder: Path) -> None:
    (folder / "short").write_text("secret\n")
    for name, said in (("missing", "cannot read the token"), ("short", "at least 20")):
        tried = cli.tried("serve", "--port", "0", "--token-file", str(folder / name))
        assert tried.code == 2
        assert said in tried.err
        assert "secret" not in tried.err


def test_it_says_that_file_descriptors_run_out(db: Database, folder: Path) -> None:
    arguments = ("serve", "--open", "--dsn", db.dsn, "--port", "0")
    limited = ["sh", "-c", 'ulimit -n 64; exec "$@"', "sh", *command(*arguments)]
    with (
        (folder / "said").open("w") as said,
        subprocess.Popen(
            *(limited,),
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        ) as process,
        ExitStack() as lines,
    ):
        lines.callback(process.kill)
        assert process.stdout is not None
        url = next(found for line in process.stdout if (found := re.search(r":(\d+)$", line)))
        for _ in range(64):
            lines.enter_context(socket.create_connection(("127.0.0.1", int(url[1]))))
        db.wait_for(lambda: "file descriptors run out" in (folder / "said").read_text())


def test_a_port_that_is_taken_is_refused_in_a_sentence(cli: CommandLine) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        tried = cli.tried("serve", "--port", port)
    assert tried.code == 2
    assert "it is in use" in tried.err
