"""A worker of a queue with limits, which notes what it starts and what it ends, until it is killed or told to stop.

Its notes are lines of JSON in a file of its own, with times by the database's clock, which is this machine's:

    ["start", group, event, attempt, picked_at, until]     poll has returned
    ["end", event, attempt, at]                            it is about to end the attempt
"""

import json
import os
import random
import signal
import sys
import time
from typing import Any

import psycopg
from psycopg.rows import namedtuple_row

ENDS = ["complete"] * 8 + ["release", "fail"]


class Limited:
    def __init__(self, dsn: str, notes: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.notes = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.connection = psycopg.connect(dsn, autocommit=True, row_factory=namedtuple_row)
        self.working = True
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "working", False))

    def run(self) -> None:
        while self.working:
            claims = self.poll()
            if not claims:
                time.sleep(0.01)
            for claim in self.random.sample(claims, len(claims)):
                time.sleep(self.random.random() * 0.01)
                self.end(claim)

    def poll(self) -> list[Any]:
        claims = self.connection.execute(
            "select * from headrace.poll('default', worker => %s, max_events => %s, each => %s, lease => %s)",
            [
                str(os.getpid()),
                self.random.choice([1, 3, 10]),
                self.random.random() < 0.5,
                f"{self.random.choice([0.3, 1.0])} seconds",
            ],
        ).fetchall()
        for one in claims:
            picked, until = one.processing_started_at.timestamp(), one.lease_expires_at.timestamp()
            self.note("start", one.tags[0], one.id, one.attempt, picked, until)
        return claims

    def end(self, claim: Any) -> None:
        how = self.random.choice(ENDS)
        self.note("end", claim.id, claim.attempt, time.time())
        others = {} if how == "complete" else {"1": {"action": how}}
        if how == "fail":
            others["1"] |= {"error": "It did not work", "retry_in": 0.01, "max_retries": 1000}
        self.connection.execute(
            "select headrace.finish('default', 'main', array[%s::bigint], array[%s::int], array[%s::bigint], others => %s)",
            [claim.id, claim.attempt, claim.lease, json.dumps(others) if others else None],
        )

    def note(self, *said: Any) -> None:
        os.write(self.notes, json.dumps(said).encode() + b"\n")


if __name__ == "__main__":
    Limited(sys.argv[1], sys.argv[2], int(sys.argv[3])).run()
