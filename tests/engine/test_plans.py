"""The hot statements find their rows by their keys, whatever the planner knows.

Statistics may be missing, a plan may have been made when the tables were empty and be kept for the
life of a session. So the calls are made in every such state, and PostgreSQL's own counters say
which indexes were read and how many entries of them (see footprint.py): that is what the plans
inside the functions did, not what EXPLAIN would make of a copy of them.
"""

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.database import Database, Server
from tests.engine.backlog import ATTEMPT, ID, LEASE, fill, leave_alone
from tests.engine.footprint import Footprint, footprint
from tests.requirements import requirement

BUSY = """
do $$
declare
    claimed headrace.claimed[];
begin
    perform headrace.poll('default', max_events => 10, lease => '1 hour') from generate_series(1, 300);
    perform headrace.poll('default', max_events => 10, lease => '1 hour', "each" => true)
    from generate_series(1, 100);
    for n in 1..150 loop
        claimed := array(select c from headrace.poll('default', max_events => 10) c);
        perform headrace.finish('default', 'main', (select array_agg(c.id) from unnest(claimed) c),
            (select array_agg(c.attempt) from unnest(claimed) c),
            (select array_agg(c.lease) from unnest(claimed) c),
            others => '{"1": {"action": "fail", "error": "no"}, "2": {"action": "fail", "reason": "no"}}');
    end loop;
end $$
"""


def make_busy(db: Database) -> None:
    """Much of everything, and little of it due."""
    fill(db, 30_000)
    fill(db, 20_000, kind="later", delay="1 hour")
    fill(db, 0, kind="known", routes=3000)
    db.sql(BUSY)
    fill(db, 1000, kind="plan")


POLL = "select * from headrace.poll('default', max_events => 20, suspects => false)"


class Scenario:
    """Each hot call once, and what it touched."""

    def __init__(self, db: Database, connection: psycopg.Connection[Any]) -> None:
        self.db = db
        self.connection = connection
        self.touched: dict[str, Footprint] = {}
        self.run()

    def call(self, name: str, statement: str, params: Any = None) -> list[Any]:
        rows, self.touched[name] = footprint(self.connection, statement, params)
        return rows

    def finish(self, name: str, claims: list[Any], others: str | None = None) -> None:
        columns = [[claim[column] for claim in claims] for column in (ID, ATTEMPT, LEASE)]
        statement = "select * from headrace.finish('default', 'main', %s, %s, %s, others => %s)"
        rows = self.call(name, statement, [*columns, others])
        assert {row[1] for row in rows} <= {"counted"}

    def run(self) -> None:
        self.publish()
        self.end_a_batch()
        self.end_held_ones()
        self.look()
        self.let_time_pass()

    def publish(self) -> None:
        self.call("publish one", "select headrace.publish('default', '{\"type\": \"plan\"}')")
        self.call(
            "publish many",
            "select headrace.publish('default', jsonb_agg(jsonb_build_object("
            "'type', 'plan', 'tags', jsonb_build_array('t' || n)))) from generate_series(1, 30) n",
        )

    def end_a_batch(self) -> None:
        batch = self.call("poll", POLL)
        lease = [batch[0][LEASE]]
        self.call("extend", "select * from headrace.extend('default', 'main', %s)", [lease])
        self.finish("finish some", batch[:5])
        self.finish("fail", batch[5:6], '{"1": {"action": "fail", "error": "no"}}')
        self.finish("release", batch[6:7], '{"1": {"action": "release"}}')
        self.finish("finish the rest", batch[7:])
        self.finish("finish all", self.connection.execute(POLL).fetchall())

    def end_held_ones(self) -> None:
        one = self.call(
            "poll for a type",
            "select * from headrace.poll('default', types => '{plan.0}', each => true)",
        )
        self.token = one[0][: ATTEMPT + 1]
        self.call("complete", "select headrace.complete('default', %s, %s)", self.token)
        self.call("complete again", "select headrace.complete('default', %s, %s)", self.token)
        self.call("resolve", "select headrace.resolve('default', 'main', %s, %s)", self.token)

    def look(self) -> None:
        self.call("event", "select * from headrace.event('default', %s)", self.token[:1])
        self.call("log", "select * from headrace.event_log('default', %s)", self.token[:1])

    def let_time_pass(self) -> None:
        self.connection.execute("select headrace.publish('default', '{\"delay\": 0.5}')")
        self.connection.execute("select headrace.publish('default', '{\"priority\": 0}')")
        for each in (False, True):
            self.connection.execute(
                "select headrace.poll('default', max_events => 2, lease => '0.5 s', each => %s,"
                " suspects => false)",
                [each],
            )
        self.db.advance(seconds=1)
        [(due, expired, *_)] = self.call(
            "tick", "select * from headrace.tick(headrace._now() - interval '1 minute')"
        )
        assert (due, expired) == (1, 2)
        suspect = self.call("poll a suspect", "select * from headrace.poll('default')")
        self.finish("complete a suspect", suspect)


def run(db: Database, connection: psycopg.Connection[Any]) -> dict[str, Footprint]:
    return Scenario(db, connection).touched


def in_every_state(db: Database) -> Iterator[tuple[str, dict[str, Footprint]]]:
    """The scenario on each state of the tables and of what the planner knows of them."""
    fill(db, 1000, kind="plan")
    old = db.connect()
    run(db, old)
    yield "empty", run(db, old)
    make_busy(db)
    run(db, old)
    yield "planned when empty", run(db, old)
    fresh = db.connect()
    run(db, fresh)
    yield "without statistics", run(db, fresh)
    db.sql("analyze")
    yield "planned before", run(db, fresh)
    fresh = db.connect()
    run(db, fresh)
    yield "with statistics", run(db, fresh)


States = dict[str, dict[str, Footprint]]


@pytest.fixture(scope="module")
def states(server: Server) -> Iterator[States]:
    db = Database(server, server.create_database(template=Server.TEMPLATE))
    leave_alone(db)
    try:
        yield dict(in_every_state(db))
    finally:
        db.close()
        server.drop_database(db.name)


def indexes(touched: Footprint) -> dict[str, int]:
    """The entries read of each index and each scanned table, months under their table's name."""
    read: dict[str, int] = {}
    for name, counts in touched.relations.items():
        if counts.scans:
            month = re.sub(r"_(\d{4}_\d\d|default)", "", name)
            read[month] = read.get(month, 0) + counts.entries
    return read


# What is looked up by which index, and how many entries the call may read in all. The scenario
# itself makes some routes, suspects and dead entries, so there is some room.
GUARDS = {
    "publish one": ({"bindings_route"}, 5),
    "publish many": ({"bindings_route"}, 40),
    "poll": ({"ready_pkey", "events_pkey"}, 300),
    "poll a suspect": ({"ready_pkey", "events_pkey"}, 150),
    "poll for a type": ({"ready_pkey", "events_pkey", "routes_route"}, 150),
    "extend": ({"leases_pkey"}, 10),
    "finish some": ({"leases_pkey"}, 30),
    "fail": ({"leases_pkey", "events_pkey"}, 15),
    "release": ({"leases_pkey", "events_pkey"}, 15),
    "finish the rest": ({"leases_pkey"}, 50),
    "finish all": ({"leases_pkey"}, 10),
    "complete": ({"held_pkey", "leases_pkey"}, 10),
    "resolve": ({"held_pkey", "outcomes_bucket_queue_idx"}, 60),
    "tick": (
        {"delayed_due", "leases_until", "held_lease", "counts_at", "scheduled_tasks_due"},
        300,
    ),
}
HOT = {
    "ready",
    "delayed",
    "leases",
    "held",
    "events",
    "outcomes",
    "routes",
    "counts",
    "scheduled_tasks",
}


@requirement("EB-15", "API-18")
@pytest.mark.parametrize("call", GUARDS)
def test_a_call_finds_its_rows_by_their_keys(states: States, call: str) -> None:
    expected, most = GUARDS[call]
    for state, calls in states.items():
        read = indexes(calls[call])
        assert expected <= read.keys(), state
        assert HOT.isdisjoint(read), f"{state}: a table is read from end to end"
        assert sum(read.values()) <= most, (state, read)
