"""The engine's functions called as a session of PostgreSQL calls them, and what they leave behind."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import namedtuple_row
from psycopg.types.json import Jsonb

from tests.database import Database

SLEEPERS = 1212433732  # the class of the advisory locks that sleeping workers hold


class Engine:
    """One session's calls in one namespace; rows come back with their columns as attributes."""

    def __init__(self, db: Database, namespace: str = "default", **options: Any) -> None:
        self.db = db
        self.namespace = namespace
        self.connection = db.connect(row_factory=namedtuple_row, **options)

    def call(self, function: str, /, **arguments: Any) -> list[Any]:
        """The rows of headrace.<function>(name => value, …)."""
        named = sql.SQL(", ").join(
            sql.SQL("{} => {}").format(sql.Identifier(name), sql.Placeholder(name))
            for name in arguments
        )
        query = sql.SQL("select * from headrace.{}({})").format(sql.Identifier(function), named)
        return self.connection.execute(query, arguments).fetchall()

    def publish(self, *events: Any) -> list[int]:
        """The ids of events published in one batch."""
        return self.publish_json(json.dumps(events))

    def publish_json(self, text: str | None) -> list[int]:
        [row] = self.call("publish", namespace=self.namespace, events=text)
        return row.ids

    def poll(self, max_events: int = 1, **arguments: Any) -> list[Any]:
        return self.call("poll", namespace=self.namespace, max_events=max_events, **arguments)

    def claim(self, **arguments: Any) -> Any:
        """The one delivery that a poll gives."""
        [claimed] = self.poll(**arguments)
        return claimed

    def finish(
        self,
        claims: Sequence[Any],
        others: dict[str, Any] | None = None,
        *,
        leases: bool = True,
        **arguments: Any,
    ) -> list[Any]:
        """The verdicts on claims that are finished in one call; leases=False leaves those out."""
        if leases:
            arguments["leases"] = [claim.lease for claim in claims]
        if others is not None:
            arguments["others"] = Jsonb(others)
        return self.call(
            "finish",
            namespace=self.namespace,
            queue="main",
            events=[claim.id for claim in claims],
            attempts=[claim.attempt for claim in claims],
            **arguments,
        )

    def end(self, action: str, claim: Any, **arguments: Any) -> Any:
        """What complete, fail, release or finalize answers for a claim."""
        if action == "fail":
            arguments.setdefault("error", "It did not work")
        [answer] = self.call(
            action,
            namespace=self.namespace,
            event=claim.id,
            attempt=claim.attempt,
            **arguments,
        )
        return answer[0]

    def tick(self, **arguments: Any) -> Any:
        [did] = self.call("tick", **arguments)
        return did

    def event(self, event_id: int) -> Any:
        [event] = self.call("event", namespace=self.namespace, event_id=event_id)
        return event

    def trail(self, event_id: int) -> list[Any]:
        return self.call("event_log", namespace=self.namespace, event_id=event_id)

    def actions(self, event_id: int) -> list[str]:
        return [entry.action for entry in self.trail(event_id)]

    def stats(self, **arguments: Any) -> Any:
        [stats] = self.call("stats", namespace=self.namespace, **arguments)
        return stats

    def dead_letter(self, event_id: int) -> Any:
        [row] = self.connection.execute(
            "select * from headrace.dead_letters where event = %s", [event_id]
        ).fetchall()
        return row

    def now(self) -> Any:
        [row] = self.call("_now")
        return row[0]


def contents(db: Database) -> dict[str, list[str]]:
    """Every row of every table of the engine: equal before and after means nothing was changed."""
    tables = db.sql(
        "select relname from pg_class"
        " where relnamespace = 'headrace'::regnamespace and relkind in ('r', 'p')"
        " and not relispartition order by relname"
    )
    return {
        table: [
            row
            for (row,) in db.sql(f'select t::text as row from headrace."{table}" t order by row')
        ]
        for (table,) in tables
    }


def differences(before: dict[str, list[str]], after: dict[str, list[str]]) -> set[str]:
    """The tables whose rows are not the same."""
    return {table for table in before if before[table] != after[table]}


@contextmanager
def refused(sqlstate: str, match: str | None = None) -> Iterator[pytest.ExceptionInfo[Any]]:
    """The block must raise an error of PostgreSQL with this SQLSTATE."""
    with pytest.raises(psycopg.Error, match=match) as caught:
        yield caught
    assert caught.value.sqlstate == sqlstate, str(caught.value).partition("\n")[0]


def stop_the_clock(db: Database) -> None:
    """Time stands still from now on, but for db.advance()."""
    db.sql(
        "insert into headrace_test.stopped select headrace._now() - shift from headrace_test.clock"
    )


class Listener:
    """A session that listens for a queue's wake-ups, and may sleep like a worker does."""

    def __init__(self, db: Database, namespace: str = "default") -> None:
        [(self.queue,)] = db.sql("select id from headrace.queues where space = %s", [namespace])
        self.connection = db.connect()
        self.connection.execute(f"listen headrace_{self.queue}")

    def fall_asleep(self) -> None:
        self.connection.execute("select pg_advisory_lock_shared(%s, %s)", [SLEEPERS, self.queue])

    def wake_up(self) -> None:
        self.connection.execute("select pg_advisory_unlock_shared(%s, %s)", [SLEEPERS, self.queue])

    def heard(self) -> list[str]:
        """The payloads of what has arrived: a round trip delivers what was committed before it."""
        self.connection.execute("select 1")
        return [notify.payload for notify in self.connection.notifies(timeout=0)]


def another_life(db: Database) -> None:
    """As if a standby had been promoted."""
    db.sql(
        "create or replace function headrace._database_life() returns text language sql as $$ select '2ffff' $$"
    )
