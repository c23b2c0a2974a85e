"""`headrace worker`, run as a user runs it: in a folder with a module in it, until a signal comes."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer

from headrace.cli.commands.worker import NotImported, found
from tests.cli.running import CommandLine
from tests.cli.test_commands import PATIENCE, command, environment, headrace
from tests.cli.test_commands import folder as folder  # the fixture
from tests.database import Database
from tests.requirements import requirement

TASKS = """
import asyncio, sys, time
import headrace
from headrace.node import stop

stop.TELLING = 60  # a machine that is busy with other tests takes its time
node = headrace.Node("tasks-1", dsn="postgresql://nobody@127.0.0.1:1/none", concurrency=3, grace=60)

@node.on_event("say")
async def say(event):
    print("said", event.payload, flush=True)

@node.on_event("slow.*")
async def slow(event):
    print("begun", flush=True)
    await asyncio.sleep(float(event.payload))
    print("ended", flush=True)

other = object()
"""


class Worker:
    """A worker process, and what it has said so far, on both its channels."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.said = ""
        self._is_over = False
        self._changed = threading.Condition()
        assert process.stdout is not None
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.said += line
                self._changed.notify_all()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def wait_for(self, pattern: str, times: int = 1) -> None:
        """Wait until it has said something so often."""

        def heard() -> bool:
            return len(re.findall(pattern, self.said)) >= times

        with self._changed:
            self._changed.wait_for(lambda: self._is_over or heard(), PATIENCE)
        assert heard(), f"{pattern} was not said:\n{self.said}"

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def ends(self) -> int:
        return self.process.wait(PATIENCE)


@contextmanager
def working(folder: Path, db: Database, *options: str) -> Iterator[Worker]:
    arguments = ["worker", "tasks:node", "--dsn", db.dsn, *options]
    process = subprocess.Popen(
        command(*arguments),
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield Worker(process)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture
def tasks(folder: Path) -> Path:
    (folder / "tasks.py").write_text(TASKS)
    return folder


def test_it_says_what_it_handles_and_handles_it_until_it_is_told_to_stop(
    tasks: Path, db: Database
) -> None:
    with working(tasks, db) as worker:
        worker.wait_for("node tasks-1 handles say, slow.* from the queue default/main")
        db.queue().publish("say", "hello")
        worker.wait_for("said hello")
        worker.signal(signal.SIGINT)
        assert worker.ends() == 0
        worker.wait_for("has stopped")
    assert "Traceback" not in worker.said


@requirement("G14")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_running_handlers_end_in_the_time_of_grace(
    tasks: Path, db: Database, number: signal.Signals
) -> None:
    event = db.queue().publish("slow.a", 0.5)
    with working(tasks, db) as worker:
        worker.wait_for("begun")
        worker.signal(number)
        assert worker.ends() == 0
        worker.wait_for("ended")
    assert db.queue().event(event.id).status == "COMPLETED"


@requirement("G14")
@pytest.mark.parametrize("how", ["no grace", "a second signal"])
def test_then_or_at_a_second_signal_events_are_handed_back_at_once(
    tasks: Path, db: Database, how: str
) -> None:
    event = db.queue().publish("slow.a", 600)
    with working(tasks, db, *(["--grace", "0"] if how == "no grace" else [])) as worker:
        worker.wait_for("begun")
        worker.signal(signal.SIGTERM)
        if how == "a second signal":
            worker.signal(
                signal.SIGINT
            )  # the same one might be taken for the first, while that is not delivered
        assert worker.process.wait(30) == 0
    there = db.queue().event(event.id)
    assert (there.status, there.retry_count, there.crashes) == ("PENDING", 0, 0)


def test_the_command_line_has_the_last_word_on_concurrency(tasks: Path, db: Database) -> None:
    db.queue().publish_many([("slow.a", 60), ("slow.b", 60)])
    with working(tasks, db, "--concurrency", "1", "--grace", "0") as worker:
        worker.wait_for("begun")
        db.queue().publish("say", "hello")
        worker.signal(signal.SIGTERM)
        assert worker.ends() == 0
    assert worker.said.count("begun") == 1
    assert "said hello" not in worker.said


def test_a_worker_shows_its_health(tasks: Path, db: Database) -> None:
    with working(tasks, db, "--health", "127.0.0.1:0") as worker:
        worker.wait_for("health port")
        found = re.search(r"health port listens on ([\d.]+:\d+)", worker.said)
        assert found is not None, worker.said
        url = f"http://{found[1]}"
        db.queue().publish("say", "hello")
        worker.wait_for("said hello")
        assert get(f"{url}/healthz") == (200, "alive\n")
        db.wait_for(lambda: get(f"{url}/readyz") == (200, "ready\n"))
        counted = re.compile(r'_total\{node="tasks-1".*type="say",outcome="completed"\} 1\n')
        db.wait_for(lambda: bool(counted.search(get(f"{url}/metrics")[1])))


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_logs_are_json_on_request(tasks: Path, db: Database) -> None:
    (tasks / "tasks.py").write_text(
        TASKS + "\n@node.on_event('bad')\ndef bad(event): raise ValueError(event.payload)\n"
    )
    event = db.queue().publish("bad", "oh no")
    with working(tasks, db, "--json-logs") as worker:
        worker.wait_for("oh no")
        worker.signal(signal.SIGTERM)
        assert worker.ends() == 0
        worker.wait_for("has stopped")
    lines: list[dict[str, Any]] = [json.loads(line) for line in worker.said.splitlines()]
    [failed] = [line for line in lines if line.get("handler") == "tasks.bad"]
    assert (failed["event_id"], failed["event_type"], failed["attempt"]) == (event.id, "bad", 1)


MISTAKES = [
    ("tasks", "'tasks' is not MODULE:NODE, as in shop.tasks:node"),
    (":node", "':node' is not MODULE:NODE"),
    ("tasks.py:node", "name the module, not the file: tasks:node"),
    ("./shop/tasks.py", "name the module, not the file: shop.tasks:node"),
    ("taks:node", "there is no module 'taks' in /"),
    ("tasks.sub:node", "there is no module 'tasks.sub' in /"),
    ("tasks:nod", "the module tasks has no 'nod'; its nodes are: node"),
    ("broken.sub:node", "there is no module 'broken' in /"),
    ("tasks:other", "tasks:other is not a headrace.Node; its type is object"),
]


@pytest.fixture
def here(tasks: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """This process in the folder, which it knows nothing of before and after."""
    monkeypatch.chdir(tasks)
    monkeypatch.setattr(sys, "path", sys.path[:])
    known = set(sys.modules)
    yield tasks
    for name in set(sys.modules) - known:
        del sys.modules[name]


@pytest.mark.parametrize(("target", "sentence"), MISTAKES)
def test_a_mistake_gets_a_sentence(here: Path, target: str, sentence: str) -> None:
    with pytest.raises(typer.BadParameter) as told:
        found(target)
    assert told.value.message.startswith(sentence)


def test_a_node_is_found_wherever_in_a_module_it_is(here: Path) -> None:
    (here / "nested.py").write_text("import tasks\nclass Shop:\n    worker = tasks.node\n")
    assert found("nested:Shop.worker") is found("tasks:node")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def half(n):\n    return n / 0\n\nhalf(1)\n", 'broken.py", line 2, in half'),
        ("import not_installed\n", "No module named 'not_installed'"),
        ("def (\n", "SyntaxError"),
    ],
)
def test_a_module_that_cannot_be_imported_shows_why(here: Path, text: str, said: str) -> None:
    (here / "broken.py").write_text(text)
    with pytest.raises(NotImported, match="cannot import broken") as told:
        found("broken:node")
    assert said in str(told.value)
    assert "importlib" not in str(told.value)
    assert "headrace/cli" not in str(told.value)


def test_a_mistake_is_told_without_a_traceback_and_by_the_exit_code(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "broken.py").write_text("things = {}\nthings['[bold]']\n")
    broken = headrace("worker", "broken:node", folder=here)
    assert "KeyError: '[bold]'" in broken.stderr
    assert "headrace/cli" not in broken.stderr
    assert broken.returncode == 1
    missing = CommandLine(None, capsys).tried("worker", "taks:node")
    assert "there is no module 'taks'" in missing.err
    assert missing.code == 2


def test_without_a_database_it_says_so_and_ends(tasks: Path) -> None:
    tried = headrace("worker", "tasks:node", "--dsn", "postgresql://me:s3cret@127.0.0.1:1/x", folder=tasks)  # fmt: skip
    assert tried.returncode == 3
    assert "refused" in tried.stderr
    assert "Traceback" not in tried.stderr
    assert "s3cret" not in tried.stderr + tried.stdout


class TestReload:
    @pytest.mark.long
    def test_a_changed_file_is_run_anew_and_a_broken_one_waited_for(
        self, tasks: Path, db: Database
    ) -> None:
        with working(tasks, db, "--reload") as worker:
            worker.wait_for("node tasks-1 handles")
            write(tasks / "tasks.py", TASKS.replace("said", "shouted"))
            worker.wait_for("tasks.py changed: restarting")
            worker.wait_for("node tasks-1 handles", times=2)
            db.queue().publish("say", "hello")
            worker.wait_for("shouted hello")
            write(tasks / "tasks.py", "node = 1 / 0")
            worker.wait_for("ZeroDivisionError")
            worker.wait_for("waiting for a file to change")
            write(tasks / "tasks.py", TASKS)
            worker.wait_for("node tasks-1 handles", times=3)
            worker.signal(signal.SIGINT)
            assert worker.ends() == 0
            worker.wait_for("has stopped", times=2)

    def test_files_of_others_are_not_watched(self, tmp_path: Path) -> None:
        from headrace.cli.commands.reload import stamps

        for name in ("a.py", "pkg/b.py", "data.txt", ".git/c.py", "env/lib/d.py", "env/pyvenv.cfg",
                     "pkg/__pycache__/e.py", "node_modules/f.py"):  # fmt: skip
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()
        watched = {os.path.relpath(name, tmp_path) for name in stamps(tmp_path)}
        assert watched == {"a.py", "pkg/b.py"}


def write(path: Path, text: str) -> None:
    """As editors do: never half of it."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)
