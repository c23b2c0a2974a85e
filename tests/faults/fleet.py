"""Worker processes that a test starts, kills and replaces."""

import json
import random
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.database import Database
from tests.faults.worker import Settings

PROGRAM = Path(__file__).with_name("worker.py")
PATIENCE = 60.0

PREPARATION = """
create sequence headrace_test.batches;
create table headrace_test.effects (event bigint, attempt int);
create function headrace_test.permit() returns boolean language sql
as $$ select nextval('headrace_test.batches') <= {batches} $$;
"""


class Fleet:
    """So many workers on one database, which publish so many batches between them."""

    def __init__(self, db: Database, notes: Path, *, size: int, batches: int, **settings: Any):
        self.db = db
        self.notes = notes
        self.batches = batches
        self.settings = settings
        self.random = random.Random(seed := random.randrange(2**32))
        print(f"seed {seed}")
        self.started = 0
        self.workers: dict[subprocess.Popen[bytes], Path] = {}  # and where they take their notes
        db.sql(PREPARATION.format(batches=batches))
        for _ in range(size):
            self.start()

    def start(self) -> None:
        self.started += 1
        notes = self.notes / f"{self.started}.jsonl"
        settings = Settings(self.db.dsn, str(notes), self.random.randrange(2**32), **self.settings)
        worker = subprocess.Popen([sys.executable, PROGRAM, json.dumps(asdict(settings))])
        self.workers[worker] = notes

    def check_alive(self) -> None:
        assert all(worker.poll() is None for worker in self.workers), "a worker ended by itself"

    def kill_one(self) -> None:
        """SIGKILL to one of them, wherever it is, and another takes its place."""
        worker = self.random.choice(list(self.workers))
        del self.workers[worker]
        worker.kill()
        worker.wait(PATIENCE)
        self.start()

    def cut_one(self) -> None:
        """The server drops one of their sessions, whatever that is doing."""
        sessions = self.db.sql(
            "select pid from pg_stat_activity"
            " where application_name = 'faults' and datname = current_database()"
        )
        if sessions:
            self.db.sql("select pg_terminate_backend(%s)", self.random.choice(sessions))

    def stop_publishing(self) -> None:
        self.db.sql("select setval('headrace_test.batches', %s)", [self.batches + 1])

    def drained(self) -> bool:
        [(published, idle)] = self.db.sql(
            "select (select last_value from headrace_test.batches) > %s,"
            " not exists (select from headrace.deliveries)"
            " and not exists (select from headrace.leases)",
            [self.batches],
        )
        return bool(published and idle)

    def stop(self) -> None:
        """Let them end what they are at."""
        while not all(notes.exists() for notes in self.workers.values()):
            self.check_alive()  # who has not begun yet does not know what to do when asked
            time.sleep(0.01)
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            assert worker.wait(PATIENCE) == 0
        self.workers.clear()

    def discard(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.wait(PATIENCE)
