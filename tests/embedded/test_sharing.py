import signal
import subprocess
import sys
from collections.abc import Callable
from os import kill
from pathlib import Path

import psycopg
import pytest

from headrace.embedded import EmbeddedPostgres

from .processes import Process, eventually, is_running, postmaster

Make = Callable[..., Process]

ON_LINUX = pytest.mark.skipif(not Path("/proc/locks").exists(), reason="looks into /proc")


def test_a_first_start_makes_a_cluster_with_checksums_and_the_database(place: Path) -> None:
    postgres = EmbeddedPostgres(place / "data")
    with psycopg.connect(postgres.start()) as connection:
        query = "SELECT current_database(), current_setting('data_checksums')"
        assert connection.execute(query).fetchone() == ("headrace", "on")
        assert connection.info.server_version // 10_000 == postgres.version
    assert is_running(postgres.data)
    assert postgres.close()
    assert not is_running(postgres.data)


def test_it_listens_on_no_network_and_keeps_its_promises(data: Path) -> None:
    with EmbeddedPostgres(data) as postgres, psycopg.connect(postgres.dsn) as connection:
        for name, value in {
            "listen_addresses": "",
            "fsync": "on",
            "synchronous_commit": "on",
            "full_page_writes": "on",
            "jit": "off",
        }.items():
            assert connection.execute(f"SHOW {name}").fetchone() == (value,), name


def test_settings_are_for_the_server_that_is_started(data: Path) -> None:
    postgres = EmbeddedPostgres(data, settings={"work_mem": "7MB", "jit": "on"})
    with postgres, psycopg.connect(postgres.dsn) as connection:
        assert connection.execute("SHOW work_mem").fetchone() == ("7MB",)
        assert connection.execute("SHOW jit").fetchone() == ("on",)


def test_what_was_stored_is_there_after_a_stop_and_a_start(data: Path) -> None:
    postgres = EmbeddedPostgres(data)
    with postgres, psycopg.connect(postgres.dsn) as connection:
        connection.execute("CREATE TABLE stopped AS SELECT 42 AS answer")
    assert not is_running(data)
    with postgres, psycopg.connect(postgres.dsn) as connection:
        assert connection.execute("SELECT answer FROM stopped").fetchone() == (42,)


def test_closing_twice_or_before_a_start_does_nothing(data: Path) -> None:
    postgres = EmbeddedPostgres(data)
    assert not postgres.close()
    postgres.start()
    assert postgres.start() == postgres.dsn
    assert postgres.close()
    assert not postgres.close()


def test_two_users_in_one_process_are_two_users(data: Path) -> None:
    one, other = EmbeddedPostgres(data), EmbeddedPostgres(data)
    assert one.start() == other.start()
    assert not one.close()
    assert is_running(data)
    assert other.close()


def test_processes_share_a_server_and_the_last_one_out_stops_it(data: Path, process: Make) -> None:
    starter, other = process(data), process(data)
    assert starter.start() == other.start()
    server = postmaster(data)
    assert not starter.close()
    assert other.query("SELECT 1") == [[1]]
    assert postmaster(data) == server
    assert other.close()
    assert not is_running(data)


def test_the_server_survives_the_process_that_started_it(data: Path, process: Make) -> None:
    starter, other = process(data), process(data)
    starter.start()
    other.start()
    starter.leave()
    assert other.query("SELECT 1") == [[1]]
    assert other.close()


@pytest.mark.parametrize("count", [4, pytest.param(10, marks=pytest.mark.rest)])
def test_many_processes_that_start_at_once_share_one_server(
    place: Path, process: Make, count: int
) -> None:
    data = place / "data"
    many = [process(data) for _ in range(count)]
    for one in many:
        one.order("start")
    assert len({one.answer() for one in many}) == 1
    log = (data / "server.log").read_text()
    assert log.count("starting PostgreSQL") == 1
    for one in many:
        one.order("close")
    assert sorted(one.answer() for one in many) == [False] * (count - 1) + [True]
    assert not is_running(data)


def test_a_process_that_ends_without_close_stops_the_server(data: Path, process: Make) -> None:
    only = process(data)
    only.start()
    only.leave()
    assert not is_running(data)


def test_a_killed_user_is_not_counted_any_more(data: Path, process: Make) -> None:
    killed, other = process(data), process(data)
    killed.start()
    other.start()
    killed.kill()
    assert other.query("SELECT 1") == [[1]]
    assert other.close()
    assert not is_running(data)


def test_a_server_whose_only_user_was_killed_is_stopped_by_the_next(
    data: Path, process: Make
) -> None:
    killed, following = process(data), process(data)
    killed.start()
    server = postmaster(data)
    killed.kill()
    assert is_running(data)
    following.start()
    assert postmaster(data) == server
    assert following.close()
    assert not is_running(data)


def test_a_forked_child_does_not_stop_its_parents_server(data: Path, process: Make) -> None:
    parent = process(data)
    parent.start()
    parent.ask("fork", lives=False, starts=False)
    assert parent.query("SELECT 1") == [[1]]
    assert parent.close()


@pytest.mark.parametrize("end", ["close", "kill"])
def test_a_forked_child_is_not_a_user(data: Path, process: Make, end: str) -> None:
    parent, other = process(data), process(data)
    parent.start()
    other.start()
    child = parent.ask("fork", lives=True, starts=False)
    try:
        if end == "close":
            assert not parent.close()
        else:
            parent.kill()
        assert other.close()
        assert not is_running(data)
    finally:
        kill(child, signal.SIGKILL)


@ON_LINUX
def test_a_forked_child_that_starts_it_is_a_user(data: Path, process: Make) -> None:
    parent, other = process(data), process(data)
    parent.start()
    other.start()
    child = parent.ask("fork", lives=True, starts=True)

    def count_of_users() -> int:
        return Path("/proc/locks").read_text().count(f":{(data / 'use.lock').stat().st_ino} ")

    eventually(lambda: count_of_users() == 3)
    assert not parent.close()
    assert not other.close()
    assert is_running(data)
    kill(child, signal.SIGKILL)
    eventually(lambda: count_of_users() == 0)
    parent.start()
    assert parent.close()


def test_a_daemon_without_standard_streams_can_use_it(data: Path) -> None:
    program = f"""
import os
from headrace.embedded import EmbeddedPostgres
os.closerange(0, 3)
postgres = EmbeddedPostgres({str(data)!r})
postgres.start()
os._exit(7 if postgres.close() else 1)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 7


@ON_LINUX
def test_the_server_holds_only_its_own_lock(data: Path) -> None:
    with EmbeddedPostgres(data):
        held = {str(fd.readlink()) for fd in Path(f"/proc/{postmaster(data)}/fd").iterdir()}
    assert str(data / "server.lock") in held
    assert not held & {str(data / "use.lock"), str(data / "gate.lock")}
