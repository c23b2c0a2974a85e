"""What is never asked for again is removed, in steps, by the upkeep; and nothing that can be set stops it."""

from typing import Any

import pytest

from tests.database import Database
from tests.engine.functions_helpers import Engine, refused

LONG_AGO = 400  # days: longer than the six months that are kept, and a month


@pytest.fixture
def engine(db: Database) -> Engine:
    engine = Engine(db)
    engine.tick(upkeep=True)
    return engine


def kept_up(engine: Engine) -> None:
    """What an hour of ticks does."""
    engine.tick(upkeep=True)


def count(db: Database, table: str, where: str = "true") -> int:
    [(rows,)] = db.sql(f"select count(*) from headrace.{table} where {where}")
    return int(rows)


def pass_through(engine: Engine, **event: Any) -> None:
    engine.publish(event)
    engine.end("complete", engine.claim())


class TestRoutes:
    def test_what_no_event_has_any_more_is_removed(self, engine: Engine, db: Database) -> None:
        for number in range(20):
            pass_through(engine, type="t", tags=[f"customer {number}"])
        assert count(db, "routes") == 20
        db.advance(days=LONG_AGO)
        kept_up(engine)
        kept_up(engine)  # their month has gone
        assert count(db, "routes") == count(db, "bindings") == 0
        pass_through(engine, type="t", tags=["customer 1"])
        engine.publish({"type": "t", "tags": ["customer 2"]})
        assert len(engine.poll(tags=["customer 2"])) == 1

    def test_it_is_done_in_steps(self, engine: Engine, db: Database) -> None:
        db.sql(
            "insert into headrace.routes select 1, n, 't', '{}', headrace._now() - interval '2 years'"
            " from generate_series(1, 2500) n"
        )
        assert db.sql("select headrace._forget_routes(1000)") == [(True,)]
        assert count(db, "routes") == 1500
        while db.sql("select headrace._forget_routes(1000)") == [(True,)]:
            pass
        assert count(db, "routes") == 0

    @pytest.mark.parametrize("lives", ["dead", "delayed", "waits"])
    def test_what_a_delivery_or_a_dead_letter_has_stays(
        self, engine: Engine, db: Database, lives: str
    ) -> None:
        event = {"type": lives, "tags": ["x"], "max_retries": 0}
        engine.publish({**event, "delay": 3 * 365 * 86400} if lives == "delayed" else event)
        if lives == "dead":
            engine.end("fail", engine.claim())
        db.advance(days=LONG_AGO)
        for _ in range(3):
            kept_up(engine)
        assert count(db, "routes") == 1
        if lives == "dead":
            engine.call("redrive", namespace="default")
        elif lives == "delayed":
            db.advance(days=3 * 365)
            kept_up(engine)
        assert [one.type for one in engine.poll(types=[lives], tags=["x"])] == [lives]

    def test_a_route_in_use_outlives_its_binding(self, engine: Engine, db: Database) -> None:
        """A type that is published every week for two years is there all the time, in a bounded number of rows."""
        for _ in range(20):
            db.advance(days=35)
            kept_up(engine)
            pass_through(engine, type="weekly")
            engine.publish({"type": "weekly", "payload": 1})
            [claimed] = engine.poll(types=["weekly"])
            engine.end("complete", claimed)
        assert 1 <= count(db, "routes") <= 10
        assert count(db, "bindings") <= 2

    @pytest.mark.parametrize("days", [29, 31])
    def test_a_publisher_that_is_not_over_keeps_its_route(
        self, engine: Engine, db: Database, days: int
    ) -> None:
        """It has looked the route up, and commits when the upkeep has been: what it published is still found by type."""
        pass_through(engine, type="slow", tags=["x"])
        db.advance(days=days)
        publisher = db.connect(autocommit=False)
        publisher.execute(
            'select headrace.publish(\'default\', \'{"type": "slow", "tags": ["x"]}\')'
        )
        db.sql("select headrace.configure('retention', '1 day')")
        for _ in range(3):
            kept_up(engine)
        publisher.commit()
        kept_up(engine)
        assert len(engine.poll(types=["slow"], tags=["x"])) == 1

    def test_a_binding_is_trusted_for_a_month(self, engine: Engine, db: Database) -> None:
        engine.publish({"type": "a"})
        db.advance(days=29)
        engine.call("publish_one", namespace="default", type="a", payload="{}")
        assert count(db, "bindings") == count(db, "routes") == 1
        db.advance(days=2)
        engine.call("publish_one", namespace="default", type="a", payload="{}")
        assert count(db, "bindings") == count(db, "routes") == 2


class TestDeleted:
    NAMING = "queue = %(queue)s"

    def test_a_queue_leaves_nothing_behind(self, engine: Engine, db: Database) -> None:
        engine.call("create_queue", namespace="default", queue="gone", types=["t"])
        [(queue,)] = db.sql("select id from headrace.queues where name = 'gone'")
        engine.publish({"type": "t"})
        claim = engine.claim(queue="gone")
        engine.call("complete", namespace="default", event=claim.id, attempt=1, queue="gone")
        db.advance(minutes=1)
        engine.tick()
        engine.call("delete_queue", namespace="default", queue="gone", with_deliveries=True)
        for _ in range(4):
            engine.tick()
        kept_up(engine)
        assert {"totals", "saved_states", "depths", "unhandled"}.isdisjoint(naming(db, queue))
        # The log tells its name as long as it tells of it.
        assert {one.queue for one in engine.trail(claim.id)} >= {"gone"}
        db.advance(days=LONG_AGO)
        for _ in range(3):
            kept_up(engine)
        assert naming(db, queue) == set()
        assert count(db, "queues", "name = 'gone'") == 0

    def test_a_namespace_leaves_nothing_behind(self, engine: Engine, db: Database) -> None:
        engine.call("create_namespace", namespace="gone")
        [(home,)] = db.sql("select id from headrace.namespaces where name = 'gone'")
        other = Engine(db, "gone")
        other.publish({"type": "t", "idempotency_key": "k"})
        engine.call("delete_namespace", namespace="gone", with_deliveries=True)
        other.connection.execute(
            "insert into headrace.bindings select %s, version, 1, '{}', 't', headrace._now()"
            " from headrace.namespaces where id = %s",
            [home, home],
        )
        for _ in range(4):
            engine.tick()
        assert count(db, "namespaces", f"id = {home}") == 1
        db.advance(days=LONG_AGO)
        for _ in range(3):
            kept_up(engine)
        assert count(db, "namespaces", f"id = {home}") == 0
        assert naming(db, home, "namespace") == set()

    def test_many_are_removed_in_steps(self, engine: Engine, db: Database) -> None:
        db.sql(
            "insert into headrace.queues (namespace, name, takes, created_at, deleted_at)"
            " select 1, 'q' || n, false, '2001-01-01', '2001-01-01' from generate_series(1, 250) n"
        )
        assert db.sql("select headrace._forget_queues(10000)") == [(True,)]
        assert count(db, "queues", "space is null") == 150
        kept_up(engine)
        assert count(db, "queues", "space is null") == 0


def naming(db: Database, number: int, column: str = "queue") -> set[str]:
    """The tables that have a row with this queue or namespace."""
    tables = db.sql(
        "select c.relname from pg_attribute a join pg_class c on c.oid = a.attrelid"
        " where c.relnamespace = 'headrace'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition"
        " and a.attname = %s and a.atttypid = 'int'::regtype",
        [column],
    )
    return {table for (table,) in tables if count(db, table, f"{column} = {number}")}


class TestIntervals:
    @pytest.mark.parametrize("name", ["retention", "idempotency_retention"])
    @pytest.mark.parametrize("value", ["9999 years", "101 years", "99999999999 days", "40000 days"])
    def test_an_absurd_one_is_refused(self, engine: Engine, name: str, value: str) -> None:
        with refused("QU001", "at most 100 years"):
            engine.call("configure", name=name, value=value)
        engine.call("configure", name=name, value="100 years")

    @pytest.mark.parametrize("value", ["9999 years", "999999999 years", "for ever", ""])
    def test_one_that_was_written_past_the_function_stops_no_upkeep(
        self, engine: Engine, db: Database, value: str
    ) -> None:
        for name in ("retention", "idempotency_retention"):
            db.sql("insert into headrace.settings values (%s, %s)", [name, value])
        pass_through(engine, type="t", idempotency_key="k")
        [(before,)] = db.sql("select count(*) from pg_inherits")
        db.advance(days=90)
        assert engine.tick(upkeep=True).kept_up
        assert db.sql("select problem from headrace.upkeep where task = 'hourly'") == [(None,)]
        [(after,)] = db.sql("select count(*) from pg_inherits")
        assert after > before
        engine.publish({"idempotency_key": "k2"})

    def test_what_fails_in_the_upkeep_is_told(self, engine: Engine, db: Database) -> None:
        db.sql("alter table headrace.admin_log rename to elsewhere")
        engine.tick(upkeep=True)
        db.sql("alter table headrace.elsewhere rename to admin_log")
        [found] = [one for one in engine.call("attention") if one.code == "upkeep_failing"]
        assert "tidying of rows" in found.about["problem"]
        engine.tick(upkeep=True)
        assert "upkeep_failing" not in {one.code for one in engine.call("attention")}


def test_counts_are_folded_in_steps(engine: Engine, db: Database) -> None:
    db.sql(
        "insert into headrace.counts (at, namespace, queue, published)"
        " select headrace._now(), 1, 1, 1 from generate_series(1, 2500)"
    )
    assert db.sql("select headrace._fold_counts('-infinity', 1000)") == [(True,)]
    assert count(db, "counts") == 1500
    engine.tick()
    assert count(db, "counts") == 0
    assert [one.published for one in engine.call("totals")] == [2500]
