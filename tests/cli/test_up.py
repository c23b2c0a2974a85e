"""`headrace up`, and what happens to it and to what it has started: as a user, a terminal and the kernel do it."""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from tests.cli.terminal import Terminal
from tests.cli.test_commands import PATIENCE, command, environment, processes_of
from tests.embedded.processes import eventually, is_running, postmaster
from tests.folders import short_folder
from tests.requirements import requirement


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as made:
        yield made


class Up:
    """`headrace up`, which is up."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, said: Path) -> None:
        self.process, self.data, self._said = process, folder / ".headrace", said
        eventually(lambda: "http://" in self.said or process.poll() is not None)
        found = re.search(r"http://\S+", self.said)
        assert found is not None, self.said
        self.url = found[0]

    @property
    def said(self) -> str:
        return self._said.read_text()

    def workers(self) -> list[int]:
        """Those of a demonstration, by the address that they were given."""
        return [
            int(path.parent.name)
            for path in Path("/proc").glob("[0-9]*/environ")
            if quote(str(self.data), safe="") in _read(path)
            and "demo.worker" in _read(path.with_name("cmdline"))
        ]

    def tell(self, *numbers: signal.Signals) -> int:
        for number in numbers:
            self.process.send_signal(number)
        return self.process.wait(PATIENCE)


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""


@contextmanager
def up(folder: Path, *arguments: str, before: Callable[[], object] | None = None) -> Iterator[Up]:
    said = folder / "said"
    with (
        said.open("wb") as file,
        subprocess.Popen(
            command("up", "--port", "0", *arguments),
            cwd=folder,
            env=environment(),
            stdout=file,
            stderr=file,
            preexec_fn=before,
        ) as process,
    ):
        try:
            yield Up(process, folder, said)
        finally:
            process.kill()


@requirement("G1")
def test_a_postgresql_that_is_killed_comes_back_with_all_that_was_acknowledged(
    folder: Path,
) -> None:
    with up(folder) as it:
        first = httpx.post(f"{it.url}/events", json={"title": "before"})
        assert first.status_code == 201
        os.kill(postmaster(it.data), signal.SIGKILL)
        statuses = set()

        def published() -> bool:
            answer = httpx.post(f"{it.url}/events", json={"title": "after"}, timeout=PATIENCE)
            statuses.add(answer.status_code)
            return answer.status_code == 201

        eventually(published)
        assert statuses <= {201, 503, 504}
        assert httpx.get(f"{it.url}/events/{first.json()['id']}").json()["title"] == "before"
        eventually(lambda: "runs again" in it.said)
        assert it.said.count("has ended; starting it again") == 1
        assert it.tell(signal.SIGTERM) == 0
    assert processes_of(folder) == []


@pytest.mark.long
def test_shards_are_started_and_more_are_added_later(folder: Path) -> None:
    def shards(it: Up) -> list[tuple[int, int]]:
        listed = httpx.get(f"{it.url}/shards", timeout=PATIENCE).json()["shards"]
        return [(one["number"], one["slots"]) for one in listed]

    ids = []
    with up(folder, "--shards", "3") as it:
        assert shards(it) == [(0, 342), (1, 341), (2, 341)]
        for n in range(8):
            body = {"title": "before", "key": f"key-{n}"}
            answer = httpx.post(f"{it.url}/events", json=body, timeout=PATIENCE)
            ids.append(answer.json()["id"])
        assert {id % 64 for id in ids} == {0, 1, 2}
        claimed = httpx.post(
            f"{it.url}/events/claim", json={"worker_id": "w", "limit": 10}, timeout=PATIENCE
        )
        for one in claimed.json()["events"]:
            done = f"{it.url}/events/{one['id']}/complete"
            httpx.post(done, json={"worker_id": "w"}, timeout=PATIENCE)
        assert it.tell(signal.SIGTERM) == 0
    with up(folder, "--shards", "4") as it:
        eventually(lambda: shards(it) == [(number, 256) for number in range(4)])
        assert httpx.get(f"{it.url}/events/{ids[-1]}", timeout=PATIENCE).status_code == 200
        assert it.tell(signal.SIGTERM) == 0
    fewer = subprocess.run(
        command("up", "--shards", "3"),
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert fewer.returncode == 2
    assert "there are 4 shards" in fewer.stderr
    assert processes_of(folder) == []


@pytest.mark.parametrize("signals", [[signal.SIGTERM, signal.SIGTERM], [signal.SIGHUP]])
def test_the_workers_of_a_demonstration_end_with_it(
    folder: Path, signals: list[signal.Signals]
) -> None:
    """Two signals at once are what `timeout` sends, and make."""
    with up(folder, "--demo") as it:
        eventually(lambda: len(it.workers()) == 3)
        assert it.tell(*signals) == 0
        assert it.workers() == []
    assert processes_of(folder) == []


def test_the_workers_of_a_demonstration_end_when_it_is_killed_and_its_postgresql_is_adopted(
    folder: Path,
) -> None:
    with up(folder, "--demo") as it:
        eventually(lambda: len(it.workers()) == 3)
        it.tell(signal.SIGKILL)
        eventually(lambda: it.workers() == [])
        assert is_running(it.data)
        left = postmaster(it.data)
    with up(folder) as it:
        assert postmaster(it.data) == left
        assert it.tell(signal.SIGHUP) == 0
    assert processes_of(folder) == []


def test_a_hangup_that_nohup_ignores_changes_nothing(folder: Path) -> None:
    with up(folder, before=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) as it:
        it.process.send_signal(signal.SIGHUP)
        assert httpx.get(f"{it.url}/events").status_code == 200
        assert it.tell(signal.SIGTERM) == 0
    assert processes_of(folder) == []


def test_a_terminal_that_is_closed_leaves_nothing_running(folder: Path) -> None:
    data = str(folder / "data")
    with Terminal("up", "--demo", "--port", "0", "--data", data) as terminal:
        terminal.wait_for("alive")
        terminal.close()
        assert terminal.process.wait(PATIENCE) == 0
    assert processes_of(folder) == []


def test_a_command_that_is_terminated_stops_the_postgresql_that_it_has_started(
    folder: Path,
) -> None:
    with subprocess.Popen(
        command("tail", "--after", "0"),
        cwd=folder,
        env=environment(),
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            ready = folder / ".headrace" / "pg" / "postmaster.pid"
            eventually(lambda: ready.exists() and "ready" in ready.read_text())
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 128 + signal.SIGTERM
        finally:
            process.kill()
    eventually(lambda: processes_of(folder) == [])
