"""The demo says what happens when a user pauses, drains or removes things while it runs."""

import json
import shlex
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import psycopg
import pytest

import headrace
from headrace.cli.demo.demo import Demonstration, Worker, second
from headrace.cli.demo.suggestions import commands
from headrace.cli.demo.worker import Order
from headrace.cli.source import Source
from tests.database import Database


def test_a_queue_that_is_drained_or_removed_does_not_end_it_and_is_said_once(db: Database) -> None:
    where = Source(db.dsn, "a database", embedded=False)
    with headrace.connect(db.dsn) as queue, second(where, queue) as audit:
        show = Demonstration(where, queue, audit, "http://127.0.0.1:1")

        def beats() -> list[str]:
            show.story.clear()
            for beat in (1, 20):
                show.publish(beat)
                show.inspect()
            return [line.plain.split("  ", 1)[1] for line in show.story]

        assert beats() == []
        queue.drain()
        assert beats() == ["the queue 'main' is draining and takes no new events"]
        queue.resume()
        assert beats() == []
        audit.delete_queue("audit")
        assert beats() == ["there is no queue 'audit' in the namespace 'default'"]


def test_what_will_not_be_completed_is_not_waited_for(db: Database) -> None:
    where = Source(db.dsn, "a database", embedded=False)
    with headrace.connect(db.dsn) as queue, second(where, queue) as audit:
        show = Demonstration(where, queue, audit, "http://127.0.0.1:1")
        dead, cancelled, waiting = queue.publish_many([("a", n) for n in range(3)])
        [claimed] = queue.poll()
        queue.fail(claimed, "nothing will help", max_retries=0)
        queue.cancel(cancelled)
        show.orphans = dict.fromkeys((dead, cancelled, waiting), "worker 1")
        show.drop_ended_orphans()
        assert list(show.orphans) == [waiting]
        worker: Any = SimpleNamespace(holds=set(), done=0)
        show.heard(worker, "completed", [str(waiting), "a", "2"])
        assert [line.plain.split("  ", 1)[1] for line in show.story] == [
            f"event {dead} came back and is FAILED",
            f"event {cancelled} came back and is CANCELLED",
            f"event {waiting} came back and was completed, attempt 2",
            "other workers completed all events of the dead worker, except 2",
        ]


@pytest.mark.parametrize(
    "noise",
    [
        b"began 7completed 8 a 1\n",
        b"\xff\xfe\n",
        b"\n",
        b"hello\n",
        b"completed x a 1\n",
        b"began\n",
    ],
)
def test_a_line_that_is_none_of_a_workers_is_passed_over(db: Database, noise: bytes) -> None:
    where = Source(db.dsn, "a database", embedded=False)
    with headrace.connect(db.dsn) as queue, second(where, queue) as audit:
        show = Demonstration(where, queue, audit, "http://127.0.0.1:1")
        lines = (
            b"began 1\n" + noise + b"completed 1 a 1\nbegan 23\nbegan 4"
        )  # killed in the middle of 45
        with (
            tempfile.TemporaryFile() as complaints,
            subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process,
        ):
            assert process.stdin is not None
            process.stdin.write(lines)
            process.stdin.close()
            worker = Worker(1, process, complaints)
            show.listen(worker)
        assert worker.silent
        assert (worker.holds, worker.done) == ({23}, 1)


def test_a_database_that_is_away_is_said_once_and_tried_again(db: Database) -> None:
    where = Source(db.dsn, "a database", embedded=False)
    with headrace.connect(db.dsn) as queue, second(where, queue) as audit:
        show = Demonstration(where, queue, audit, "http://127.0.0.1:1")
        for _ in range(2):
            for what in ("publish", "look"):
                with show.hindered(what):
                    raise psycopg.OperationalError("server closed the connection")
        assert [line.plain.split("  ", 1)[1] for line in show.story] == [
            "the database does not answer"
        ]
        show.look()
        show.publish(1)
        assert show.hindrances == {}


def test_what_it_suggests_to_publish_is_what_its_worker_can_read() -> None:
    _, *typed = shlex.split(commands("http://127.0.0.1:1")["publish something"])
    assert typed[:2] == ["publish", "order.created"]
    assert msgspec.convert(json.loads(typed[2]), Order).number == 1


def test_what_it_suggests_names_a_folder_that_would_not_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADRACE_DATA", raising=False)
    (tmp_path / ".headrace").mkdir()
    (tmp_path / ".headrace" / "gate.lock").touch()
    assert commands("", tmp_path.resolve() / ".headrace")["follow the log"] == "headrace tail"
    assert commands("", Path("/var/a b"))["follow the log"] == "headrace tail --data '/var/a b'"
