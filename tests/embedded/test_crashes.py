import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from headrace.embedded import EmbeddedPostgres, find_binaries, postmaster
from headrace.embedded.identity import candidates
from headrace.errors import EmbeddedError

from .processes import Process, Refused, eventually, is_locked, is_running
from .processes import postmaster as postmaster_of

Make = Callable[..., Process]


@contextmanager
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as sleep:
        yield sleep
        assert sleep.poll() is None, "the stranger was killed"
        sleep.kill()


def test_what_was_acknowledged_survives_a_kill_of_the_postmaster(
    own_data: Path, process: Make
) -> None:
    before, after = process(own_data), process(own_data)
    before.start()
    before.query("CREATE TABLE kept AS SELECT generate_series(1, 1000) AS number")
    os.kill(postmaster_of(own_data), signal.SIGKILL)
    after.start()
    assert after.query("SELECT count(*) FROM kept") == [[1000]]
    assert "was not properly shut down" in (own_data / "server.log").read_text()
    assert before.query("SELECT count(*) FROM kept") == [[1000]]
    assert not before.close()
    assert after.close()


def test_what_was_acknowledged_survives_a_kill_of_all_of_them(data: Path, process: Make) -> None:
    killed, after = process(data), process(data)
    killed.start()
    killed.query("CREATE TABLE kept AS SELECT 42")
    os.kill(postmaster_of(data), signal.SIGKILL)
    killed.kill()
    after.start()
    assert after.query("TABLE kept") == [[42]]
    assert after.close()


def test_starting_again_revives_a_server_that_died(data: Path) -> None:
    postgres = EmbeddedPostgres(data)
    postgres.start()
    os.kill(postmaster_of(data), signal.SIGKILL)
    with psycopg.connect(postgres.start()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert postgres.close()


def test_closing_a_server_that_died_is_a_stop(data: Path) -> None:
    postgres = EmbeddedPostgres(data)
    postgres.start()
    os.kill(postmaster_of(data), signal.SIGKILL)
    assert postgres.close()
    assert not is_running(data)


def test_the_orphans_of_a_killed_postmaster_are_waited_for(data: Path, process: Make) -> None:
    impatient, patient = process(data, timeout=1.0), process(data)
    patient.start()  # which may take its time
    impatient.start()
    with psycopg.connect(EmbeddedPostgres(data).dsn) as connection:
        orphan = connection.info.backend_pid
        os.kill(orphan, signal.SIGSTOP)
        try:
            os.kill(postmaster_of(data), signal.SIGKILL)
            with pytest.raises(Refused, match=r"does not answer after 1 s \(connection"):
                impatient.start()
            patient.order("start")
        finally:
            os.kill(orphan, signal.SIGCONT)
        patient.answer()
    assert not impatient.close()
    assert patient.close()


def test_a_kill_during_initdb_leaves_no_half_made_cluster(place: Path, process: Make) -> None:
    data, fifo = place / "data", place / "fifo"
    os.mkfifo(fifo)
    killed, after = process(data, binaries=_stuck_binaries(place, fifo)), process(data)
    killed.order("start")
    eventually(lambda: list(data.glob("pg.new-*/PG_VERSION")))
    killed.kill()
    try:
        assert not (data / "pg").exists()
        assert is_running(data), "the orphaned initdb must hold the lock"
        after.order("start")
        eventually(lambda: is_locked(data / "gate.lock"))
        assert list(data.glob("pg.new-*")), "what the orphan writes to must stay"
    finally:
        fifo.write_text("go on\n")
    after.answer()
    assert after.query("SELECT 1") == [[1]]
    assert not list(data.glob("pg.new-*"))
    assert after.close()


def _stuck_binaries(place: Path, fifo: Path) -> Path:
    """Programs whose initdb begins its work and then waits for a line in the fifo."""
    return _binaries(place, f'echo 18 >"$2/PG_VERSION"; read line <"{fifo}"')


def _failing_binaries(place: Path) -> Path:
    return _binaries(place, 'echo 18 >"$2/PG_VERSION"; echo "it is made of cheese" >&2; exit 1')


def _binaries(place: Path, initdb: str) -> Path:
    real, folder = find_binaries(), place / "bin"
    folder.mkdir()
    (folder / "postgres").symlink_to(real.postgres)
    version = f'test "$1" = --version && exec "{real.initdb}" --version'
    (folder / "initdb").write_text(f"#!/bin/sh\n{version}\n{initdb}\n")
    (folder / "initdb").chmod(0o755)
    return folder


def test_a_stale_pid_file_that_names_a_living_stranger_is_no_obstacle(data: Path) -> None:
    pid_file = data / "pg" / "postmaster.pid"
    with stranger() as sleep:
        pid_file.write_text(f"{sleep.pid}\n{data / 'pg'}\n1700000000\n5432\n/tmp\n\n0 0\nready\n")
        pid_file.chmod(0o600)
        postgres = EmbeddedPostgres(data)
        with psycopg.connect(postgres.start()) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        assert postmaster_of(data) != sleep.pid
        assert postgres.close()


def test_a_stranger_is_never_asked_to_stop(data: Path) -> None:
    with stranger() as sleep:
        (data / "pg" / "postmaster.pid").write_text(f"{sleep.pid}\n")
        assert not postmaster.interrupt(data / "pg")


def test_the_server_is_found_and_strangers_are_spared_without_proc(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("ps") is None:
        pytest.skip("there is no ps")
    monkeypatch.setattr(postmaster, "PROC", Path("/nowhere"))
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    with stranger() as sleep:
        (data / "pg" / "postmaster.pid").write_text(f"{sleep.pid}\n")
        assert not postmaster.interrupt(data / "pg")
        postgres = EmbeddedPostgres(data)
        postgres.start()
        assert postgres.close()


def test_the_postmaster_of_another_cluster_is_a_stranger_too(data: Path, own_data: Path) -> None:
    with EmbeddedPostgres(own_data) as other:
        pid = postmaster_of(other.data)
        (data / "pg" / "postmaster.pid").write_text(f"{pid}\n")
        assert not postmaster.interrupt(data / "pg")
        with EmbeddedPostgres(data):
            assert postmaster_of(data) != pid
        assert postmaster_of(other.data) == pid
        assert is_running(other.data)


def test_a_server_that_was_started_by_hand_is_left_alone(own_data: Path) -> None:
    cluster = own_data / "pg"
    identity, binaries = next(candidates(own_data)), find_binaries()
    script = 'cd "$1" && "$2" -D . -c unix_socket_directories="$1" >log 2>&1 &'
    identity.run(["/bin/sh", "-c", script, "sh", cluster, binaries.postgres])
    eventually(lambda: postmaster.announces_ready(cluster))
    pid = postmaster_of(own_data)
    try:
        with pytest.raises(EmbeddedError, match=f"did not start .process {pid}."):
            EmbeddedPostgres(own_data).start()
        assert postmaster_of(own_data) == pid
    finally:
        assert postmaster.interrupt(cluster)
    eventually(lambda: not (cluster / "postmaster.pid").exists())
    with EmbeddedPostgres(own_data):
        assert is_running(own_data)


def test_a_start_that_is_broken_off_leaves_no_server(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_off(postgres: EmbeddedPostgres) -> str | None:
        if postmaster.announces_ready(postgres.cluster):
            raise KeyboardInterrupt
        return "not yet"

    monkeypatch.setattr(EmbeddedPostgres, "_refusal", break_off)
    with pytest.raises(KeyboardInterrupt):
        EmbeddedPostgres(data).start()
    eventually(lambda: not is_running(data))


def test_a_server_that_cannot_start_says_why(data: Path) -> None:
    with pytest.raises(EmbeddedError, match=r'(?s)server\.log.*"max_connections".*"nonsense"'):
        EmbeddedPostgres(data, settings={"max_connections": "nonsense"}).start()
    assert not is_running(data)
    with EmbeddedPostgres(data):
        assert is_running(data)


def test_an_initdb_that_fails_says_why_and_makes_nothing(place: Path) -> None:
    data = place / "data"
    with pytest.raises(EmbeddedError, match="made of cheese"):
        EmbeddedPostgres(data, binaries=_failing_binaries(place)).start()
    assert not (data / "pg").exists()
    assert not is_running(data)


def test_a_folder_that_was_deleted_and_made_anew_is_another_folder(
    own_data: Path, seed: Path
) -> None:
    before, after = EmbeddedPostgres(own_data), EmbeddedPostgres(own_data)
    before.start()
    leftover = postmaster_of(own_data)
    shutil.rmtree(own_data)
    shutil.copytree(seed, own_data)
    after.start()
    assert not before.close()
    # It would notice by itself within a minute that its folder is gone.
    os.kill(leftover, signal.SIGQUIT)
    eventually(lambda: not Path(f"/proc/{leftover}").exists())
    with psycopg.connect(after.dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert after.close()


def test_a_folder_that_was_deleted_can_be_closed(own_data: Path) -> None:
    postgres = EmbeddedPostgres(own_data)
    postgres.start()
    leftover = postmaster_of(own_data)
    shutil.rmtree(own_data)
    try:
        assert not postgres.close()
    finally:
        os.kill(leftover, signal.SIGQUIT)


def test_a_program_that_does_not_wait_for_its_children_still_sees_a_failure(
    place: Path, process: Make
) -> None:
    one = process(place / "data", binaries=_failing_binaries(place), unreaped=True)
    with pytest.raises(Refused, match="made of cheese"):
        one.start()
    assert not (place / "data" / "pg").exists()
    other = process(place / "data", unreaped=True)
    other.start()
    assert other.close()
