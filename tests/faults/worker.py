"""A worker that publishes, claims and ends claims at random, and notes what it is told.

Its notes are lines of JSON in a file of its own, written before it goes on: what a killed process
has noted survives it, and only its last line may be cut short.

    ["published", [event, …]]                          publish has returned
    ["claimed", lease, until, [[event, attempt], …]]   poll has returned
    ["extended", lease, until]                         a heartbeat was told that the lease is held
    ["ended", [[event, attempt, action], …]]           the end was counted, or had been before
    ["lost", [[event, attempt], …]]                    the attempt was no longer its own
    ["effect", event, attempt]                         its own insert and the end were committed
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg
from psycopg.rows import namedtuple_row
from psycopg.types.json import Jsonb

PATIENCE = 60.0  # seconds that a server may be away
PAUSE = 0.01

T = TypeVar("T")
Claim = Any  # a row of poll


@dataclass
class Settings:
    dsn: str
    notes: str
    seed: int
    shortest_lease: float = 0.2
    longest_lease: float = 0.6
    forgetful: bool = True  # some claims are ended too late, some never


class Worker:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.name = f"{os.getpid()}"
        self.random = random.Random(settings.seed)
        self.notes = os.open(settings.notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.publishing = True
        self.hints: str | None = None
        self.connection = self.connect()

    def connect(self) -> psycopg.Connection[Any]:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return psycopg.connect(
                    self.settings.dsn,
                    autocommit=True,
                    row_factory=namedtuple_row,
                    application_name="faults",
                    connect_timeout=5,
                )
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(PAUSE)

    def note(self, *what: object) -> None:
        os.write(self.notes, json.dumps(what).encode() + b"\n")

    def run(self, stopping: Callable[[], bool]) -> None:
        while not stopping():
            try:
                self.act()
            except psycopg.OperationalError as error:
                # Whether it was committed is not known, and nobody was told that it was.
                self.recover(error)

    def recover(self, error: psycopg.OperationalError) -> None:
        """Connect again, if it was the connection; a deadlock, for one, is no excuse."""
        if not self.connection.closed:
            raise error
        self.connection = self.connect()

    def insist(self, call: Callable[[], T]) -> T:
        while True:
            try:
                return call()
            except psycopg.OperationalError as error:
                self.recover(error)

    def act(self) -> None:
        choice = self.random.random()
        if choice < 0.05:
            self.connection.execute("select headrace.tick()")
        elif choice < 0.4 and self.publishing:
            self.publish()
        else:
            self.work()

    def publish(self) -> None:
        row = self.connection.execute("select headrace_test.permit()").fetchone()
        self.publishing = row is not None and row[0]
        if self.publishing:
            events = [self.event() for _ in range(self.random.choice([1, 1, 5, 20, 80]))]
            row = self.connection.execute(
                "select ids from headrace.publish('default', %s)", [Jsonb(events)]
            ).fetchone()
            assert row is not None
            self.note("published", row.ids)

    def event(self) -> dict[str, object]:
        choose = self.random.choice
        event: dict[str, object] = {"type": choose("abc"), "payload": {"from": self.name}}
        if self.random.random() < 0.5:
            event["max_retries"] = choose([0, 1, 2, 3, 20])
        if self.random.random() < 0.2:
            event["delay"] = choose([0.05, 0.1, 0.2])
        if self.random.random() < 0.2:
            event["priority"] = choose([0, 9])
        return event

    def work(self) -> None:
        claims = self.claim()
        if not claims:
            time.sleep(PAUSE)
            return
        if self.settings.forgetful and self.random.random() < 0.1:
            self.dawdle(claims[0].lease_expires_at.timestamp())
        elif self.random.random() < 0.2:
            self.insist(lambda: self.extend(claims[0].lease))
        while claims and not (self.settings.forgetful and self.random.random() < 0.05):
            size = self.random.choice([1, 10, len(claims)])
            part, claims = claims[:size], claims[size:]
            if part[0].held and self.random.random() < 0.5:
                self.complete_with_effect(part[0])
                part = part[1:]
            if part:
                self.finish(part)

    def dawdle(self, until: float) -> None:
        """Until the lease runs out, give or take: whoever ends it then races with its reapers."""
        time.sleep(max(0, until + self.random.uniform(-0.02, 0.04) - time.time()))

    def claim(self) -> list[Claim]:
        choose = self.random.choice
        filtered = self.random.random() < 0.3
        claims = self.connection.execute(
            "select * from headrace.poll('default', types => %(types)s, worker => %(worker)s,"
            " max_events => %(max_events)s, lease => %(lease)s * interval '1 second',"
            " each => %(each)s, hints => %(hints)s, sweep => %(sweep)s)",
            {
                "types": choose([["a"], ["b", "c"]]) if filtered else None,
                "worker": self.name,
                "max_events": choose([1, 5, 20, 100]),
                "lease": self.random.uniform(
                    self.settings.shortest_lease, self.settings.longest_lease
                ),
                "each": choose([True, False]),
                "hints": None if filtered else self.hints,
                "sweep": choose([True, False]),
            },
        ).fetchall()
        if claims:
            until = claims[0].lease_expires_at.timestamp()
            self.note("claimed", claims[0].lease, until, [[c.id, c.attempt] for c in claims])
        if not filtered:
            self.hints = claims[0].hints if claims else None
        return claims

    def extend(self, lease: int) -> None:
        row = self.connection.execute(
            "select * from headrace.extend('default', 'main', %s, %s * interval '1 second')",
            [[lease], self.settings.longest_lease],
        ).fetchone()
        assert row is not None
        if row.state == "held":
            self.note("extended", lease, row.lease_expires_at.timestamp())

    def finish(self, claims: list[Claim]) -> None:
        others = {
            str(n): how
            for n in range(1, len(claims) + 1)
            if (how := self.random.choice([None] * 6 + [FAILURE, RELEASE])) is not None
        }

        def attempt() -> list[Any]:
            return self.connection.execute(
                "select * from headrace.finish('default', 'main', %s, %s, %s, others => %s)",
                [
                    [claim.id for claim in claims],
                    [claim.attempt for claim in claims],
                    [claim.lease for claim in claims],
                    Jsonb(others) if others else None,
                ],
            ).fetchall()

        times = self.random.choice([1, 1, 1, 2])  # a repetition must get the same answer
        for _ in range(times):
            told = {row.item: row for row in self.insist(attempt)}
            ended, lost = [], []
            for number, claim in enumerate(claims, 1):
                row = told.get(number)
                if row is None or row.verdict in ("counted", "repeated"):
                    ended.append([claim.id, claim.attempt, row.action if row else "COMPLETED"])
                else:
                    assert row.verdict == "lost", row
                    lost.append([claim.id, claim.attempt])
            self.note("ended", ended)
            self.note("lost", lost)

    def complete_with_effect(self, claim: Claim) -> None:
        """What it writes itself and the end of the claim are one transaction."""
        while True:
            try:
                with self.connection.transaction():
                    self.connection.execute(
                        "insert into headrace_test.effects values (%s, %s)",
                        [claim.id, claim.attempt],
                    )
                    self.connection.execute(
                        "select headrace.complete('default', %s, %s)", [claim.id, claim.attempt]
                    )
                self.note("effect", claim.id, claim.attempt)
                return
            except psycopg.OperationalError as error:
                self.recover(error)
                if self.insist(lambda: self.resolve(claim)) is not None:
                    return
            except psycopg.DatabaseError as error:
                if error.sqlstate != "QU020":
                    raise
                self.note("lost", [[claim.id, claim.attempt]])
                return

    def resolve(self, claim: Claim) -> str | None:
        row = self.connection.execute(
            "select headrace.resolve('default', 'main', %s, %s) as action",
            [claim.id, claim.attempt],
        ).fetchone()
        assert row is not None
        if row.action == "COMPLETED":
            self.note("effect", claim.id, claim.attempt)
        return row.action  # type: ignore[no-any-return]


FAILURE = {"action": "fail", "error": "no luck", "retry_in": 0}
RELEASE = {"action": "release"}


def main() -> None:
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    Worker(Settings(**json.loads(sys.argv[1]))).run(lambda: bool(stopped))


if __name__ == "__main__":
    main()
