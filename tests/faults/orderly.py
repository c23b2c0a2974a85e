"""A worker process on events with ordering keys: claims, ends them in all ways at several isolation levels, and may be
killed at any moment."""

import json
import random
import sys
import time
from typing import Any

import psycopg
from psycopg import IsolationLevel
from psycopg.types.json import Jsonb

POLL = """
select id, attempt, lease from headrace.poll('default', worker => %s, max_events => %s, lease => '1 second', "each" => %s)
"""
FINISH = "select * from headrace.finish('default', 'main', %s, %s, %s, others => %s)"
LEVELS = [IsolationLevel.READ_COMMITTED, IsolationLevel.REPEATABLE_READ]
ENDS = [
    *[{"action": "complete"}] * 6,
    {"action": "fail", "error": "no luck", "retry_in": 0},
    {"action": "fail", "error": "no luck", "retry_in": 0.02},
    {"action": "release"},
]


def work(dsn: str, name: str, chance: random.Random) -> None:
    claiming = psycopg.connect(dsn, autocommit=True, application_name=name)
    finishing = psycopg.connect(dsn, application_name=name)
    while True:
        size, each = chance.choice([1, 2, 5]), chance.random() < 0.5
        claims = claiming.execute(POLL, [name, size, each]).fetchall()
        if not claims:
            time.sleep(0.005)
            continue
        finishing.isolation_level = chance.choice(LEVELS)
        finish(finishing, claims, [chance.choice(ENDS) for _ in claims])


def finish(connection: psycopg.Connection[Any], claims: list[Any], ends: list[Any]) -> None:
    """At REPEATABLE READ with a snapshot that is older than what others do meanwhile."""
    columns = [list(column) for column in zip(*claims, strict=True)]
    others = {str(item): end for item, end in enumerate(ends, 1)}
    while True:
        try:
            connection.execute("select count(*) from headrace.queues")
            connection.execute(FINISH, [*columns, Jsonb(others)])
            connection.commit()
            return
        except psycopg.errors.SerializationFailure:
            connection.rollback()


if __name__ == "__main__":
    dsn, name, seed = json.loads(sys.argv[1])
    work(dsn, name, random.Random(seed))
