"""The programs in examples/, run as their users would."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
        process.communicate(timeout=20)
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
