"""Readers of the log and of the events, which must be told everything, while publishers make it hard: some take back what they
have published, others are interrupted while their commits wait for the standby."""

import itertools
import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from tests.laboratory.accounting import Accounts
from tests.laboratory.house import PATIENCE
from tests.laboratory.laboratory import Laboratory

INTERRUPTED = "interrupted"
CANCEL = f"""
select count(*) filter (where pg_cancel_backend(pid)) from pg_stat_activity
where application_name = '{INTERRUPTED}' and wait_event = 'SyncRep'
"""
LOG = "select * from headrace.log_since('default', mark => %s, \"limit\" => 1000, actions => '{EMITTED}')"
REPLAY = "select * from headrace.replay('default', after => %s, mark => %s, \"limit\" => 1000)"
PUBLISH = "select ids from headrace.publish('default', %s)"
TAKEN_BACK = [{"type": "plain", "payload": {"key": f"taken back {n}"}} for n in range(40)]

Told = set[tuple[int, Any]]


class Readers:
    """`dsn` finds whichever server takes writes."""

    def __init__(self, dsn: str, notes: Path) -> None:
        self._dsn, self._notes = dsn, notes
        self._calm, self._end = Event(), Event()
        self.log: Told = set()
        self.replayed: Told = set()
        self.again = self.interrupted = self.rewound = 0
        self.in_vain: set[int] = set()
        self._at_end = {"log": False, "replay": False}
        self._failed: list[BaseException] = []
        self._mark: str | None = None
        self._after = 0
        self._numbers, self._began = itertools.count(1), 0.0
        self._undecided: str | None = None
        disturb = (self._take_back, self._cancel, self._publish)
        self._disturbing = [self._thread(work, self._calm) for work in disturb]
        self._reading = [self._thread(work, self._end) for work in (self._follow, self._replay)]

    def _thread(self, work: Callable[[psycopg.Connection[Any]], None], until: Event) -> Thread:
        """Works over a connection, and over another when that is lost."""

        def run() -> None:
            while not until.is_set():
                try:
                    with psycopg.connect(self._dsn, autocommit=True) as connection:
                        while not until.is_set():
                            work(connection)
                except psycopg.OperationalError:
                    time.sleep(0.1)
                except BaseException as error:
                    self._failed.append(error)
                    return

        thread = Thread(target=run, daemon=True)
        thread.start()
        return thread

    def _take_back(self, connection: psycopg.Connection[Any]) -> None:
        with suppress(psycopg.Rollback), connection.transaction():
            [(ids,)] = connection.execute(PUBLISH, [Jsonb(TAKEN_BACK)]).fetchall()
            self.in_vain.update(ids)
            raise psycopg.Rollback
        time.sleep(0.02)

    def _cancel(self, connection: psycopg.Connection[Any]) -> None:
        [(count,)] = connection.execute(CANCEL).fetchall()
        self.interrupted += count
        time.sleep(0.01)

    def _publish(self, connection: psycopg.Connection[Any]) -> None:
        """One event, until it is said to be safe: a publisher that was interrupted does not know, and asks again."""
        if self._undecided is None:
            self._undecided = f"interrupted.{next(self._numbers)}"
            self._note("intent", self._undecided, "plain")
            self._began = time.monotonic()
        key = self._undecided
        event = {"type": "plain", "payload": {"key": key}, "idempotency_key": key}
        warnings: list[Any] = []
        connection.add_notice_handler(warnings.append)
        connection.execute(f"set application_name = '{INTERRUPTED}'")
        [(ids,)] = connection.execute(PUBLISH, [Jsonb(event)]).fetchall()
        connection.remove_notice_handler(warnings.append)
        if not warnings:
            self._note("ok", key, ids[0], time.monotonic() - self._began)
            self._undecided = None
        time.sleep(0.01)

    def _note(self, *line: Any) -> None:
        with (self._notes / "interrupted.ledger").open("a") as ledger:
            ledger.write(json.dumps(line) + "\n")

    def _follow(self, connection: psycopg.Connection[Any]) -> None:
        *rows, last = connection.execute(LOG, [self._mark]).fetchall()
        told = {(row[1], row[10]) for row in rows}
        self.again += len(told & self.log)
        self.log |= told
        self.rewound += last[-1] is not None
        self._mark = last[11]
        [(end,)] = connection.execute("select headrace.log_end()").fetchall()
        self._at_end["log"] = last[12] >= end
        time.sleep(0.02)

    def _replay(self, connection: psycopg.Connection[Any]) -> None:
        """One after the other, each from where the last has ended."""
        mark, is_done = None, False
        while not is_done:
            *rows, last = connection.execute(REPLAY, [self._after, mark]).fetchall()
            self.replayed |= {(row[0], row[8]) for row in rows}
            self._after, mark, is_done = last[0], last[9], last[10]
            time.sleep(0.02)
        self._at_end["replay"] = True

    def calm(self) -> None:
        """Nobody disturbs any more."""
        self._calm.set()
        for thread in self._disturbing:
            thread.join(PATIENCE)
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            while self._undecided is not None:
                self._publish(connection)

    def account(self, accounts: Accounts, lab: Laboratory) -> None:
        """Of all that is there, when nothing moves any more."""
        self._at_end = dict.fromkeys(self._at_end, False)
        deadline = time.monotonic() + PATIENCE
        while not all(self._at_end.values()) and time.monotonic() < deadline:
            time.sleep(0.05)
        self._end.set()
        for thread in self._reading:
            thread.join(PATIENCE)
        stored = set(lab.house.sql("select id, created_at from headrace.events"))
        accounts.must_not_be("readers that failed", self._failed)
        accounts.must_not_be("events that the log never told", stored - self.log)
        accounts.must_not_be("events that no replay told", stored - self.replayed)
        accounts.figures |= {
            "waits for the standby interrupted": self.interrupted,
            "numbers drawn in vain": len(self.in_vain),
            "numbers drawn again": len(self.in_vain & {id for id, _ in stored}),
            "times the log went back": self.rewound,
            "entries told again": self.again,
            "entries told and lost": len(self.log - stored),
        }
