"""totals, backlog, latencies, count_nodes: the figures for monitoring."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from tests.database import Database
from tests.engine.backlog import fill
from tests.engine.functions_helpers import Engine, refused, stop_the_clock
from tests.requirements import requirement

HAPPENED = (
    *("published", "completed", "failed", "retried", "abandoned", "dead_lettered", "attempts"),
    *("timed", "ms", "recent_attempts", "recent_failures"),
)


@pytest.fixture
def engine(db: Database) -> Engine:
    stop_the_clock(db)
    return Engine(db)


def happened(engine: Engine, queue: str = "main") -> dict[str, int]:
    [row] = [row for row in engine.call("totals") if row.queue == queue]
    return {name: getattr(row, name) for name in HAPPENED if getattr(row, name)}


class TestTotals:
    @requirement("EQ-17", "EB-13")
    def test_it_counts_what_happened(self, engine: Engine, db: Database) -> None:
        assert happened(engine) == {}
        engine.publish(*({"type": f"t{n}", "max_retries": 1 + n % 2} for n in range(6)))
        engine.finish(engine.poll(types=["t0"]), ms=[7])
        for type in ("t1", "t2"):  # the first may be tried again, the second is dead
            engine.end("fail", engine.claim(types=[type]))
        engine.end("release", engine.claim(types=["t3"]))
        engine.poll(types=["t4"])
        db.advance(minutes=2)
        engine.tick()  # abandoned, uncharged
        assert happened(engine) == {
            **{"published": 6, "completed": 1, "failed": 2, "retried": 2, "abandoned": 1},
            **{"dead_lettered": 1, "attempts": 5, "timed": 1, "ms": 7},
            **{"recent_attempts": 5, "recent_failures": 3},
        }

    def test_folding_and_forgetting_change_nothing(self, engine: Engine, db: Database) -> None:
        engine.publish({}, {})
        engine.finish([engine.claim()], ms=[3])
        engine.end("fail", engine.claim())
        told = happened(engine)
        engine.tick()
        assert db.sql("select count(*) from headrace.counts") == [(0,)]
        assert happened(engine) == told
        assert (told.pop("recent_attempts"), told.pop("recent_failures")) == (2, 1)
        db.advance(days=32)
        engine.tick(upkeep=True)
        assert db.sql("select count(*) from headrace.stats") == [(0,)]
        assert happened(engine) == told
        engine.publish({})
        engine.tick()
        assert happened(engine) == {**told, "published": 3}

    def test_it_tells_who_holds_what(self, engine: Engine, db: Database) -> None:
        engine.publish(*({"payload": n} for n in range(9)))
        start = engine.now()
        batch = engine.poll(max_events=4)
        db.advance(seconds=5)
        held = engine.poll(max_events=2, each=True)
        gone = engine.poll(max_events=2, each=True)
        engine.finish([*batch[:1], *held[:1], *gone], leases=False)
        [row] = engine.call("totals")
        assert (row.leases, row.processing, row.oldest_claim_at) == (2, 4, start)

    def test_every_queue_has_a_row_and_a_deleted_one_none(self, engine: Engine) -> None:
        engine.call("create_namespace", namespace="a")
        engine.call("create_queue", namespace="a", queue="mail")
        engine.call("create_queue", namespace="a", queue="gone")
        engine.call("delete_queue", namespace="a", queue="gone")
        engine.call("pause", namespace="a", queue="mail")
        assert [row[:3] for row in engine.call("totals")] == [
            ("a", "mail", "paused"),
            ("a", "main", "active"),
            ("default", "main", "active"),
        ]


def backlog(engine: Engine) -> dict[str | None, tuple[int, int, int]]:
    return {row.type: (row.ready, row.delayed, row.dead_letters) for row in engine.call("backlog")}


def look_at_few_pages(db: Database, pages: int = 1) -> None:
    """So that a test need not fill hundreds."""
    [(text,)] = db.sql("select pg_get_functiondef('headrace.backlog'::regproc)")
    db.sql(text.replace(", 250)", f", {pages})"))


class TestBacklog:
    @requirement("EQ-17", "EB-13")
    def test_it_tells_what_waits_by_type(self, engine: Engine, db: Database) -> None:
        start = engine.now()
        engine.publish(*[{"type": "a", "payload": n} for n in range(40)])  # a pack
        db.advance(seconds=3)
        engine.publish(
            *({"type": "a", "tags": ["x"]}, {"type": "b", "delay": 60}, {"type": "b", "delay": 70}),
            *(
                {"type": "k", "key": "one"},
                {"type": "k", "key": "one"},
                {"type": "k", "key": "two"},
            ),
            {"type": "c", "max_retries": 0},
        )
        engine.end("fail", engine.claim(types=["c"]))
        assert backlog(engine) == {"a": (41, 0, 0), "b": (0, 2, 0), "c": (0, 0, 1), "k": (3, 0, 0)}
        rows = {row.type: row for row in engine.call("backlog")}
        assert rows["a"].oldest_ready_at == start
        assert rows["k"].oldest_ready_at == start + timedelta(seconds=3)
        assert rows["b"].oldest_ready_at is None
        assert all(row.is_exact for row in rows.values())

    def test_queues_are_told_apart(self, engine: Engine) -> None:
        engine.call("create_namespace", namespace="other")
        engine.call("create_queue", namespace="default", queue="mail", types=["m"])
        engine.publish({"type": "m"}, {"type": "n"})
        engine.call("publish", namespace="other", events='[{"type": "m"}]')
        assert [row[:4] for row in engine.call("backlog")] == [
            ("default", "mail", "m", 1),
            ("default", "main", "m", 1),
            ("default", "main", "n", 1),
            ("other", "main", "m", 1),
        ]

    def test_a_rare_type_is_not_missed_where_only_some_pages_are_looked_at(
        self, engine: Engine, db: Database
    ) -> None:
        look_at_few_pages(db)
        engine.publish(
            *({"type": "rare"}, {"type": "rare", "delay": 60}, {"type": "rare", "key": "k"}),
            *({"type": "late", "delay": 90}, {"type": "dead", "max_retries": 0}),
        )
        # one by one, so that they are no packs and fill pages
        db.sql("""select headrace.publish('default', jsonb_build_array(jsonb_build_object(
                      'type', 'many', 'tags', jsonb_build_array('t' || n % 7), 'delay', n % 2 * 60)))
                  from generate_series(1, 2000) n""")
        engine.end("fail", engine.claim(types=["dead"]))
        told = backlog(engine)
        assert told["rare"][0] == 2
        assert told["rare"][1] >= 1 <= told["late"][1]
        assert told["dead"] == (0, 0, 1)
        exact = {row.type: row.is_exact for row in engine.call("backlog")}
        assert exact["dead"]

    def test_what_is_not_counted_is_estimated_and_says_so(
        self, engine: Engine, db: Database
    ) -> None:
        look_at_few_pages(db, pages=12)
        db.sql(
            "select headrace.publish('default', '[{\"type\": \"many\"}]') from generate_series(1, 3000)"
        )
        [row] = engine.call("backlog")
        assert not row.is_exact
        assert 250 <= row.ready <= 6000

    def test_tokens_of_ordering_keys_are_no_deliveries(self, engine: Engine, db: Database) -> None:
        look_at_few_pages(db)
        db.sql("""select headrace.publish('default', '[{"type": "k", "key": "one"}]')
                  from generate_series(1, 200)""")
        assert backlog(engine) == {"k": (200, 0, 0)}

    def test_of_very_many_types_the_largest_are_told(self, engine: Engine) -> None:
        engine.publish(*({"type": f"t{n}"} for n in range(130)), {"type": "t129"})
        told = backlog(engine)
        assert len(told) == 101
        assert told[None] == (30, 0, 0)
        assert told["t129"] == (2, 0, 0)

    @pytest.mark.new_database
    def test_it_costs_the_same_whatever_waits(self, engine: Engine, db: Database) -> None:
        def cost(count: int) -> float:
            fill(db, count, kind=f"kind{count}", routes=3)
            plan = "explain (analyze, buffers, format json) select * from headrace.backlog()"
            db.sql(plan)
            [(explained,)] = db.sql(plan)
            return explained[0]["Plan"]["Shared Hit Blocks"]

        few, many = cost(20_000), cost(100_000)
        assert many < 4 * few


def latencies(engine: Engine, after: int | None) -> tuple[dict[Any, Any], int]:
    *found, last = engine.call("latencies", bounds=[0.1, 1.0, 10.0], after=after)
    return {(row.kind, row.bucket): (row.attempts, row.seconds) for row in found}, last.attempts


class TestLatencies:
    @requirement("EQ-17", "EB-13")
    def test_how_long_they_waited_and_ran(self, engine: Engine, db: Database) -> None:
        found, after = latencies(engine, None)
        assert found == {}
        engine.publish({"type": "a"}, {"type": "b"}, {"type": "c"})
        db.advance(seconds=4)
        said, silent, left = (engine.claim(types=[type]) for type in "abc")
        db.advance(seconds=20)
        engine.finish([said], ms=[50])
        engine.finish([silent])
        engine.end("release", left)
        db.advance(seconds=3)
        found, then = latencies(engine, after)
        assert found == {("wait", 2): (3, 12), ("run", 0): (1, 0.05), ("run", 3): (1, 20)}
        assert then > after
        assert latencies(engine, then) == ({}, then)

    def test_only_the_first_attempt_has_waited(self, engine: Engine, db: Database) -> None:
        _, after = latencies(engine, None)
        engine.publish({"backoff": {"kind": "fixed", "delay": 0}})
        for _ in range(2):
            engine.end("fail", engine.claim())
        db.advance(seconds=3)
        found, _ = latencies(engine, after)
        assert found == {("wait", 0): (1, 0), ("run", 0): (2, 0)}

    def test_what_may_still_be_written_is_left_for_later(
        self, engine: Engine, db: Database
    ) -> None:
        _, after = latencies(engine, None)
        engine.publish({})
        engine.finish([engine.claim()])
        assert latencies(engine, after) == ({}, after)
        db.advance(seconds=3)
        found, _ = latencies(engine, after)
        assert sum(attempts for attempts, _ in found.values()) == 2

    def test_a_bound_on_what_is_looked_at(self, engine: Engine, db: Database) -> None:
        _, after = latencies(engine, None)
        engine.publish(*({"payload": n} for n in range(300)))
        for _ in range(3):
            engine.finish(engine.poll(max_events=100))
        db.advance(seconds=3)
        *found, _ = engine.call("latencies", bounds=[1.0], after=after, most=30)
        assert {row.kind: row.attempts for row in found} == {"wait": 30, "run": 30}
        *found, _ = engine.call("latencies", bounds=[1.0], after=after, most=2000)
        assert {row.kind: row.attempts for row in found} == {"wait": 300, "run": 300}
        with refused("QU001", "bounds"):
            engine.call("latencies", bounds=[])


def test_nodes_are_counted_by_whether_they_live(engine: Engine, db: Database) -> None:
    instances = [uuid4() for _ in range(3)]
    for number, instance in enumerate(instances):
        engine.call("register_node", namespace="default", node_id=f"n{number}", instance=instance)
    engine.call("unregister_node", namespace="default", node_id="n0", instance=instances[0])
    assert engine.call("count_nodes") == [("default", 2, 0, 1)]
    db.advance(seconds=80)
    engine.call("touch_node_heartbeat", namespace="default", node_id="n1", instance=instances[1])
    db.advance(seconds=20)
    assert engine.call("count_nodes") == [("default", 1, 1, 1)]
