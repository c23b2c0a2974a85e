"""A server that dies under its users is started again, and its log stays short."""

import logging
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from headrace.embedded import EmbeddedPostgres, log, supervisor
from tests.requirements import requirement

from .processes import eventually, is_running, mode, postmaster

ANSWERS = "SELECT count(*) FROM supervised"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "LOOK", 0.05)
    monkeypatch.setattr(supervisor, "LONGEST", 0.2)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What the supervisor has said."""
    caplog.set_level(logging.WARNING, "headrace.embedded")
    return lambda: caplog.messages


def answers(dsn: str) -> bool:
    try:
        with psycopg.connect(dsn) as connection:
            return connection.execute(ANSWERS).fetchone() == (1000,)
    except psycopg.OperationalError:
        return False


def killed(data: Path) -> None:
    """The postmaster, and it is known to be gone when this returns."""
    pid = postmaster(data)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{pid}").exists())


@requirement("G1")
@pytest.mark.parametrize("length", [0, 90], ids=["short path", "long path"])
def test_a_server_that_is_killed_is_started_again_at_the_same_address(
    place: Path, seed: Path, length: int, lines: Callable[[], list[str]]
) -> None:
    data = place / ("data" + length * "x")  # a long one has its socket in /tmp
    shutil.copytree(seed, data)
    with EmbeddedPostgres(data, supervised=True) as postgres:
        dsn = postgres.dsn
        with psycopg.connect(dsn) as connection:
            connection.execute("CREATE TABLE supervised AS SELECT generate_series(1, 1000)")
        for _ in range(2):
            said = len(lines())
            killed(data)
            eventually(lambda: answers(dsn), 30)
            eventually(lambda before=said: len(lines()) == before + 2)
        assert postgres.dsn == dsn
        assert [line.split(str(data))[1][:12] for line in lines()] == 2 * [
            " has ended; ",
            " runs again ",
        ]
    assert not is_running(data)


def test_a_server_that_does_not_start_is_tried_until_it_does_and_the_reason_is_said_once(
    own_data: Path, lines: Callable[[], list[str]]
) -> None:
    settings = own_data / "pg" / "postgresql.conf"
    before = settings.read_text()
    with EmbeddedPostgres(own_data, supervised=True) as postgres:
        with psycopg.connect(postgres.dsn) as connection:
            connection.execute("CREATE TABLE supervised AS SELECT generate_series(1, 1000)")
        settings.write_text(f"{before}\nwal_level = nonsense\n")
        killed(own_data)

        def tries() -> int:
            return postgres.log.read_text().count("configuration file")

        eventually(lambda: tries() >= 3)
        settings.write_text(before)
        eventually(lambda: answers(postgres.dsn))
        eventually(lambda: len(lines()) == 3)
    assert "has ended; starting it again" in lines()[0]
    assert 'does not start: configuration file "' in lines()[1]
    assert "runs again" in lines()[2]


def test_a_reason_that_differs_by_a_number_is_the_same(
    data: Path, lines: Callable[[], list[str]]
) -> None:
    with EmbeddedPostgres(data) as postgres:
        postgres.close()
        watching = supervisor.Supervisor(postgres)
        for why in ("no space for xlogtemp.17", "no space for xlogtemp.18", "no such file"):
            watching._failed(supervisor.NotStarted("it stopped", why))
    assert [line.split(": ")[1].split(";")[0] for line in lines()] == [
        "no space for xlogtemp.17",
        "no such file",
    ]


def test_a_folder_that_was_deleted_is_not_made_anew(own_data: Path) -> None:
    postgres = EmbeddedPostgres(own_data, supervised=True)
    postgres.start()
    pid = postmaster(own_data)
    shutil.rmtree(own_data)
    os.kill(pid, signal.SIGQUIT)
    assert postgres._supervisor is not None
    thread = postgres._supervisor._thread
    assert thread is not None
    eventually(lambda: not thread.is_alive())
    assert not own_data.exists()
    assert not postgres.close()


def test_closing_a_server_that_cannot_be_started_again_does_not_wait_for_it(own_data: Path) -> None:
    settings = own_data / "pg" / "postgresql.conf"
    postgres = EmbeddedPostgres(own_data, supervised=True)
    postgres.start()
    settings.write_text("wal_level = nonsense\n")
    killed(own_data)
    assert postgres.close()
    assert not is_running(own_data)


def test_a_close_that_is_broken_off_stops_the_server_all_the_same(
    own_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres = EmbeddedPostgres(own_data, supervised=True)
    postgres.start()

    def break_off(self: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(supervisor.Supervisor, "end", break_off)
        with pytest.raises(KeyboardInterrupt):
            postgres.close()
    eventually(lambda: not is_running(own_data))


def test_the_log_of_a_running_server_is_kept_short(
    own_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "BYTES", 100_000)
    with EmbeddedPostgres(own_data, supervised=True) as postgres:
        before = own_data / "server.log.1"
        before.write_text("older")
        with psycopg.connect(postgres.dsn, autocommit=True) as connection:
            for number in range(300):
                connection.execute(f"DO $$ BEGIN RAISE LOG 'line {number} {'x' * 1000}'; END $$")
            connection.execute("DO $$ BEGIN RAISE LOG 'the last line'; END $$")
        eventually(lambda: postgres.log.stat().st_size < 100_000)
        eventually(lambda: "the last line" in before.read_text() + postgres.log.read_text())
        assert before.stat().st_size <= 100_000
        assert "older" not in before.read_text()
        assert mode(before) == 0o600
        assert before.stat().st_uid == own_data.stat().st_uid
        assert b"\0" not in postgres.log.read_bytes(), "the server must go on where the file ends"


def test_a_log_is_cut_also_where_it_cannot_be_copied(tmp_path: Path) -> None:
    long = tmp_path / "server.log"
    long.write_bytes(b"x" * (log.BYTES + 1))
    (tmp_path / "server.log.1").mkdir()
    log.shorten(long)
    assert long.stat().st_size == 0


def test_the_reason_is_the_last_fatal_message(tmp_path: Path) -> None:
    said = tmp_path / "server.log"
    assert log.reason(said) == f"see {said}"
    said.write_text("2026-01-01 00:00:00 UTC [7] LOG:  starting\n")
    assert log.reason(said) == "2026-01-01 00:00:00 UTC [7] LOG:  starting"
    with said.open("a") as file:
        file.write("2026-01-01 00:00:00 UTC [7] PANIC:  could not write: No space left on device\n")
        file.write("2026-01-01 00:00:00 UTC [7] LOG:  database system is shut down\n")
    assert log.reason(said) == "could not write: No space left on device"
