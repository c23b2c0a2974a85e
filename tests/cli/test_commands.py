"""The command line, run as a user runs it: in a process of its own, in a folder of its own, unless it only refuses or prints."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import httpx
import psycopg
import pytest

from headrace.install.migrate import script
from tests.cli.running import CommandLine
from tests.database import Database
from tests.folders import short_folder

PATIENCE = 60.0


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as made:
        yield made


def environment() -> dict[str, str]:
    """A newcomer's: no database is named."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HEADRACE_D", "DATABASE_URL", "PG"))
    }


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from headrace.cli import main; main()", *arguments]


def headrace(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def processes_of(folder: Path) -> list[str]:
    """The command lines of living processes that name a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in words:
            found.append(words)
    return found


def test_it_says_which_release_it_is(folder: Path) -> None:
    assert headrace("--version", folder=folder).stdout == f"headrace {version('headrace')}\n"


def test_without_a_command_it_shows_the_commands(folder: Path) -> None:
    shown = headrace(folder=folder)
    assert "migrate" in shown.stdout + shown.stderr
    assert "up" in shown.stdout + shown.stderr


def test_migrate_prints_the_sql_it_would_run(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HEADRACE_DSN", "postgresql://nobody@127.0.0.1:1/none")
    assert CommandLine(None, capsys)("migrate", "--sql").out == script()
    assert list(folder.iterdir()) == [], "printing needs no database"


def test_migrate_brings_a_named_database_up_to_date_and_says_so(
    db: Database, cli: CommandLine, folder: Path
) -> None:
    db.sql("drop schema headrace cascade")
    first = headrace("migrate", "--dsn", db.dsn, folder=folder)
    assert first.returncode == 0, first.stderr
    assert "migrated to this release" in first.stdout
    assert "up to date" in cli("migrate").out
    assert db.sql("select major from headrace.version()") == [(1,)]


def test_a_database_that_is_not_there_gets_a_sentence_without_the_password(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tried = CommandLine("postgresql://me:s3cret@127.0.0.1:1/shop", capsys).tried("migrate")
    assert tried.code == 3
    assert "connection" in tried.err
    assert "s3cret" not in tried.err + tried.out


def test_up_starts_an_embedded_database_with_the_schema_and_stops_it_in_the_end(
    folder: Path,
) -> None:
    with subprocess.Popen(
        command("up", "--port", "0"),
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        said = "".join(process.stdout.readline() for _ in range(3))
        dsn = re.search("HEADRACE_DSN='(.*)'", said)
        url = re.search("http://127.0.0.1:[0-9]+", said)
        assert dsn is not None, said
        assert url is not None, said
        assert httpx.get(f"{url[0]}/events").json()["total"] == 0
        with psycopg.connect(dsn[1]) as connection:
            row = connection.execute("select ids from headrace.publish('default', '{}')").fetchone()
            assert row is not None
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    assert processes_of(folder) == []


@pytest.mark.rest
def test_the_demonstration_kills_a_worker_and_its_events_come_back(folder: Path) -> None:
    with subprocess.Popen(
        command("up", "--demo"), cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        story = ""
        deadline = time.monotonic() + PATIENCE
        while "other workers completed all events of the dead worker" not in story:
            assert time.monotonic() < deadline, story
            line = process.stdout.readline()
            assert line, f"it ended by itself:\n{story}"
            story = f"{story} {line.strip()}"
        assert re.search(r"kill -9 \d+: it had \d+ events in progress", story)
        assert "came back and was completed, attempt 2" in story
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    assert processes_of(folder) == []


def test_an_address_as_sqlalchemy_writes_it_is_understood_and_never_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tried = CommandLine("postgresql+psycopg://me:s3cret@127.0.0.1:1/shop", capsys).tried("up")
    assert tried.code == 3
    assert "refused" in tried.err
    assert "s3cret" not in tried.err + tried.out


def test_up_on_a_database_of_ones_own_does_not_print_its_address(
    db: Database, folder: Path
) -> None:
    shown = headrace("up", "--dsn", f"{db.dsn} password=s3cret", "--for", "1", folder=folder)
    assert shown.returncode == 0, shown.stderr
    assert "Headrace is up" in shown.stdout
    assert "s3cret" not in shown.stdout


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["table", "json"])
def test_who_reads_no_further_hears_nothing_and_the_exit_code_is_a_broken_pipes(
    db: Database, folder: Path, form: list[str]
) -> None:
    db.queue().publish_many([("a", "x" * 100)] * 300)
    gone, output = os.pipe()
    os.close(gone)
    try:
        ended = subprocess.run(
            command("events", "--limit", "300", "--dsn", db.dsn, *form),
            cwd=folder,
            env=environment(),
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    finally:
        os.close(output)
    assert (ended.returncode, ended.stderr) == (141, "")
