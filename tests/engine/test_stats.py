"""stats: how a queue is doing; _fold_counts: how what happened is kept by the minute."""

from datetime import timedelta
from uuid import uuid4

import pytest
from psycopg.rows import namedtuple_row

from tests.database import Database
from tests.engine.backlog import fill
from tests.engine.footprint import footprint
from tests.engine.functions_helpers import Engine, refused, stop_the_clock
from tests.requirements import requirement

AT_ONCE = {"kind": "fixed", "delay": 0}
NOTHING = (0, 0, 0, 0, 0, None, 0, 0, 0, 0, 0, 0, None, True)


@pytest.fixture
def engine(db: Database) -> Engine:
    """At the beginning of a minute, where the clock stands still."""
    stop_the_clock(db)
    db.sql("update headrace_test.stopped set at = date_trunc('minute', at)")
    return Engine(db)


def fold(db: Database) -> None:
    db.sql("select headrace._fold_counts('-infinity')")
    assert db.sql("select count(*) from headrace.counts") == [(0,)]


def test_a_new_queue_has_nothing_to_tell(engine: Engine) -> None:
    assert engine.stats() == NOTHING


@requirement("EQ-17", "EB-13")
def test_it_tells_what_stands_where(engine: Engine, db: Database) -> None:
    start = engine.now()
    engine.publish(*({"type": f"t{n}", "max_retries": 0} for n in range(6)), {"delay": 60})
    db.advance(seconds=10)
    engine.publish({"type": "late"})
    engine.end("complete", engine.claim(types=["t0"]))
    engine.end("fail", engine.claim(types=["t1"]))
    engine.poll(types=["t2", "t3"], max_events=2)
    engine.poll(types=["t4"], each=True)

    stats = engine.stats()
    assert (stats.ready, stats.delayed, stats.processing, stats.dead_letters) == (2, 1, 3, 1)
    assert stats.oldest_ready_at == start
    engine.poll(types=["t5"])
    assert engine.stats().oldest_ready_at == start + timedelta(seconds=10)


@requirement("EQ-17", "EB-13")
def test_it_tells_what_happened(engine: Engine, db: Database) -> None:
    engine.publish(*({"payload": n, "max_retries": 2} for n in range(10)))
    claims = engine.poll(max_events=10)
    fail = {"action": "fail"}
    engine.finish(claims[:3])
    engine.finish(claims[3:4])
    engine.finish(
        claims[4:8],
        {"1": fail, "2": {**fail, "reason": "dead"}, "3": {"action": "release"}},
    )
    engine.finish(claims[:2])  # repeated: not counted again
    db.advance(minutes=2)
    engine.tick()  # two are abandoned, uncharged

    stats = engine.stats()
    assert (stats.published, stats.completed, stats.failed) == (10, 5, 2)
    assert (stats.abandoned, stats.dead_lettered, stats.attempts) == (2, 1, 10)
    assert stats.dead_letters == 1


@requirement("EQ-17", "EB-13")
def test_the_average_time_is_that_of_the_attempts_that_told_theirs(
    engine: Engine, db: Database
) -> None:
    engine.publish(*({"payload": n} for n in range(9)))
    claims = engine.poll(max_events=9)
    engine.finish(claims[:3], ms=[10, 20, None])
    engine.finish(claims[3:4], ms=[30])
    engine.finish(claims[4:6], {"1": {"action": "fail"}, "2": {"action": "release"}}, ms=[60, None])
    engine.finish(claims[6:8])
    db.advance(minutes=2)
    engine.tick()
    assert engine.stats().average_ms == 30
    assert engine.stats().attempts == 9


def test_dead_letters_of_crashes_are_counted(engine: Engine, db: Database) -> None:
    engine.publish({"max_retries": 1})
    for _ in range(2):
        engine.claim()
        db.advance(minutes=2)
        engine.tick()
    stats = engine.stats()
    assert (stats.abandoned, stats.dead_lettered, stats.failed, stats.attempts) == (2, 1, 0, 2)


def test_folding_changes_nothing_that_is_told(engine: Engine, db: Database) -> None:
    for _ in range(4):
        engine.publish({"backoff": AT_ONCE}, {})
        claims = engine.poll(max_events=2)
        engine.finish(claims, {"1": {"action": "fail"}}, ms=[5, 7])
        db.advance(seconds=50)
    whole = {minutes: engine.stats(period=timedelta(minutes=minutes)) for minutes in (0, 1, 2, 5)}
    fold(db)
    assert {minutes: engine.stats(period=timedelta(minutes=minutes)) for minutes in whole} == whole
    fold(db)
    assert engine.stats() == whole[5]


def test_counts_of_one_minute_are_folded_into_one_row(engine: Engine, db: Database) -> None:
    for seconds in (20, 20, 30, 20):  # at 0, 20, 40 seconds; then at 1:10
        engine.publish({"type": "a"})
        engine.finish([engine.claim()], ms=[seconds])
        fold(db)
        db.advance(seconds=seconds)
    rows = db.sql("select published, completed, attempts, ms from headrace.stats order by minute")
    assert rows == [(3, 3, 3, 70), (1, 1, 1, 20)]


def test_tick_folds(engine: Engine, db: Database) -> None:
    engine.publish({}, {})
    engine.tick()
    assert db.sql("select count(*) from headrace.counts") == [(0,)]
    assert db.sql("select published from headrace.stats") == [(2,)]
    assert engine.stats().published == 2


def test_a_fold_that_is_told_since_when_leaves_the_older_ones(engine: Engine, db: Database) -> None:
    engine.publish({})
    db.advance(seconds=10)
    since = engine.now()
    engine.publish({}, {})
    engine.tick(since=since)
    assert db.sql("select published from headrace.counts") == [(1,)]
    assert engine.stats().published == 3
    engine.tick()
    assert db.sql("select published from headrace.counts") == []
    assert engine.stats().published == 3


@pytest.mark.parametrize("folded", [False, True])
def test_a_period_is_told_to_the_minute(engine: Engine, db: Database, folded: bool) -> None:
    for _ in range(10):  # one at the beginning of each of ten minutes
        engine.publish({})
        db.advance(minutes=1)
    if folded:
        fold(db)
    published = {
        minutes: engine.stats(period=timedelta(minutes=minutes)).published
        for minutes in (0, 1, 5, 10, 1000)
    }
    assert published == {0: 0, 1: 1, 5: 5, 10: 10, 1000: 10}
    db.advance(seconds=30)  # the minute in which the period began counts whole
    assert engine.stats(period=timedelta(minutes=1)).published == 1
    assert engine.stats().published == 5


def test_queues_are_told_apart(engine: Engine, db: Database) -> None:
    engine.call("create_namespace", namespace="other")
    other = Engine(db, "other")
    engine.publish({}, {}, {})
    other.publish({"max_retries": 0})
    other.end("fail", other.claim())
    for _ in range(2):
        here, there = engine.stats(), other.stats()
        assert (here.ready, here.published, here.failed, here.dead_letters) == (3, 3, 0, 0)
        assert (there.ready, there.published, there.failed, there.dead_letters) == (0, 1, 1, 1)
        fold(db)


def test_an_unknown_namespace_or_queue_is_refused(engine: Engine) -> None:
    for namespace in ("nowhere", "", None):
        with refused("QU010"):
            engine.call("stats", namespace=namespace)
    for queue in ("other", "", None):
        with refused("QU011"):
            engine.stats(queue=queue)


# Beyond the bound to which it counts -----------------------------------------------------------

MANY = 250_000
DEAD = """
insert into headrace.dead_letters (event, queue, namespace, created_at, died_at, status, reason, attempts, failures,
                                   crashes, route, priority, type, payload)
select g, q.id, q.namespace, now(), now(), 'FAILED', 'no', 1, 1, 0, 1, 5, 'a', '{}'
from headrace.queues q, generate_series(1, %s) g where q.space = 'default'
"""


@pytest.mark.new_database
@pytest.mark.parametrize(
    "place",
    [
        "ready",
        pytest.param("delayed", marks=pytest.mark.rest),
        pytest.param("dead_letters", marks=pytest.mark.rest),
    ],
)
def test_a_great_many_are_estimated_and_said_to_be(
    engine: Engine, db: Database, place: str
) -> None:
    if place == "dead_letters":
        db.sql(DEAD, [MANY])
    else:
        fill(db, MANY, routes=3, delay="1 hour" if place == "delayed" else None)
    for known in (False, True):
        if known:
            db.sql("analyze")
        [stats], touched = footprint(
            db.connect(row_factory=namedtuple_row), "select * from headrace.stats('default')"
        )
        assert 0.8 * MANY < getattr(stats, place) < 1.2 * MANY
        assert not stats.is_exact
        assert touched.total.entries < 200_000, str(touched)


@pytest.mark.new_database
@requirement("EQ-17", "EB-13")
def test_what_it_costs_is_not_what_the_others_cost(engine: Engine, db: Database) -> None:
    engine.call("create_namespace", namespace="other")
    fill(db, 20_000, routes=5, namespace="other")
    fill(db, 20_000, routes=5, namespace="other", delay="1 hour")
    engine.publish(*({"type": f"t{n}"} for n in range(3)))
    [stats], touched = footprint(engine.connection, "select * from headrace.stats('default')")
    assert (stats.ready, stats.delayed, stats.is_exact) == (3, 0, True)
    assert touched.total.entries < 100, str(touched)


def test_the_oldest_is_found_among_those_that_came_back(engine: Engine, db: Database) -> None:
    start = engine.now()
    engine.publish({"backoff": AT_ONCE})
    db.advance(seconds=10)
    engine.publish({}, {})
    engine.end("fail", engine.claim())
    assert engine.stats().oldest_ready_at == start
    db.sql("insert into headrace.keyed (queue, key, event, created_at, route, priority)"
           " select id, 'k', 1, '2020-01-01Z', 1, 5 from headrace.queues")  # fmt: skip
    assert engine.stats().oldest_ready_at.year == 2020


def test_what_a_node_has_claimed_beyond_its_handlers_is_not_in_progress(
    engine: Engine, db: Database
) -> None:
    engine.publish(*({"type": "a"} for _ in range(12)))
    node, unknown = uuid4(), uuid4()
    engine.call("register_node", namespace="default", node_id="n", instance=node, at_once=3)
    engine.call("register_node", namespace="default", node_id="u", instance=unknown)
    batch = engine.poll(5, instance=node)
    held = engine.poll(2, instance=node, each=True)
    engine.poll(2, instance=unknown)
    engine.poll(1)

    def counted() -> tuple[int, int, int]:
        stats = engine.stats()
        return stats.ready, stats.claimed_ahead, stats.processing

    assert counted() == (2, 4, 6)
    engine.finish(held)
    assert counted() == (2, 2, 6)
    engine.finish(batch[:3])
    assert counted() == (2, 0, 5)
    engine.call("register_node", namespace="default", node_id="n", instance=node)
    engine.poll(2, instance=node)
    assert counted() == (0, 1, 6), "who does not say how many leaves what is known"
