"""The programs in examples/, run as their users would."""

import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.database import Database

EXAMPLES = Path(__file__).parents[2] / "examples"

# Stands for Sentry's package: it writes down what it is told.
SENTRY = """
from contextlib import contextmanager
class Scope:
    def set_tag(self, name, value): print("tag", name, value, flush=True)
    def set_context(self, name, value): print("context", name, value, flush=True)
    def capture_exception(self, error): print("captured", repr(error), flush=True)
def init(dsn): ...
@contextmanager
def new_scope(): yield Scope()
"""


@contextmanager
def worker(db: Database, program: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, EXAMPLES / program],
        env={**os.environ, "HEADRACE_DSN": db.dsn, **environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_the_shop_charges_and_mails(db: Database) -> None:
    queue = db.queue()
    order = queue.publish("order.created", {"order": 42, "total": 12.5}).id
    nonsense = queue.publish("order.created", {"order": "many"}).id
    with worker(db, "shop.py") as shop:
        assert shop.stdout is not None
        assert shop.stdout.readline() == f"mail for order 42 caused by event {order}\n"
        db.wait_for(lambda: queue.event(nonsense).status == "FAILED")
    assert queue.event(order).status == "COMPLETED"
    assert db.sql("select number, total::float from invoices") == [(42, 12.5)]
    assert "order" in queue.dead_letter(nonsense).reason
    assert [task.timezone for task in queue.schedules()] == ["Europe/Berlin"]


def test_sentry_is_told(db: Database, tmp_path: Path) -> None:
    (tmp_path / "sentry_sdk.py").write_text(SENTRY)
    event = db.queue().publish("order.created")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    with worker(db, "errors_to_sentry.py", PYTHONPATH=path) as process:
        assert process.stdout is not None
        said = [process.stdout.readline().strip() for _ in range(3)]
    assert said == [
        "tag event_type order.created",
        f"context event {{'id': {event.id}, 'attempt': 1}}",
        "captured ConnectionError('the bank does not answer')",
    ]


@pytest.mark.rest
def test_an_import_goes_on_where_it_was_when_its_worker_is_killed(db: Database) -> None:
    queue = db.queue()
    event = queue.publish("import.requested", {"pages": 12, "seconds": 0.5})
    environment = {**os.environ, "HEADRACE_DSN": db.dsn}
    program = [sys.executable, EXAMPLES / "resumable_import.py"]
    with subprocess.Popen(program, env=environment, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        said = [first.stdout.readline() for _ in range(3)]
        first.kill()
        said += first.stdout.readlines()
    db.sql("""update headrace.events set payload = payload || '{"seconds": 0.05}'""")
    db.advance(seconds=6)  # its lease has ended
    with worker(db, "resumable_import.py") as second:
        assert second.stdout is not None
        while not said[-1].endswith(": page 11\n"):
            said.append(second.stdout.readline())
        db.wait_for(lambda: queue.event(event.id).status == "COMPLETED")
    pages = [int(line.split()[-1]) for line in said]
    assert pages == sorted(
        set(pages)
    )  # none twice; one may be missing that was saved and not printed
    assert {line.split(":")[0] for line in said} == {"attempt 1", "attempt 2"}


@pytest.mark.rest
def test_a_web_application_publishes_in_its_transactions(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    testing = pytest.importorskip("fastapi.testclient")
    monkeypatch.setenv("HEADRACE_DSN", db.dsn)
    app = runpy.run_path(str(EXAMPLES / "web_shop.py"))["app"]
    with testing.TestClient(app) as client:
        number = client.post("/orders", params={"item": "nails"}).json()["order"]
        db.wait_for(lambda: client.get(f"/orders/{number}").json()["state"] == "sent")
        assert client.get("/orders/0").status_code == 404
    assert [one.status for one in db.queue().events(types=["order.placed"]).events] == ["COMPLETED"]


def test_every_example_has_its_test() -> None:
    """What lies in a folder is not run: see test_operations.py."""
    tests = "".join(one.read_text("utf-8") for one in EXAMPLES.parent.glob("tests/**/test_*.py"))
    programs = [one for one in EXAMPLES.iterdir() if one.is_file()]
    assert [one.name for one in programs if one.name not in tests] == []
