"""Limits of queues: what guard lets pass, what it tells, what it refuses, and how far a limit can be passed."""

from typing import Any

import pytest

from tests.database import Database
from tests.engine.functions_helpers import Engine, refused, stop_the_clock
from tests.requirements import requirement


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


def limit(db: Database, **settings: Any) -> None:
    """Settings of the queue main, as rows have them."""
    for name, value in settings.items():
        db.sql(f"update headrace.queues set {name} = %s", [value])


def guard(engine: Engine, *, enforce: bool = True) -> bool:
    [row] = engine.connection.execute(
        "select headrace._check_capacity(array(select id from headrace.queues), %s, headrace._now())",
        [enforce],
    ).fetchall()
    return row[0]


def counts(db: Database) -> int:
    return db.sql("select count(*) from headrace.depths")[0][0]


def test_without_a_limit_nothing_is_counted(engine: Engine, db: Database) -> None:
    engine.publish(*[{}] * 10)
    assert guard(engine) is False
    assert counts(db) == 0


@requirement("G15")
def test_the_high_watermark_tells_of_pressure(engine: Engine, db: Database) -> None:
    limit(db, high_watermark=3)
    engine.publish({}, {})
    assert guard(engine) is False
    db.advance(seconds=1)
    engine.publish({})
    assert guard(engine) is True
    db.advance(seconds=1)
    engine.poll()
    assert guard(engine) is False


@requirement("G15")
def test_the_limit_refuses_or_only_tells(engine: Engine, db: Database) -> None:
    limit(db, max_queue_depth=2)
    engine.publish({}, {})
    with refused("QU050", "'main' is full: 2 deliveries wait, and its max_queue_depth is 2"):
        guard(engine)
    assert guard(engine, enforce=False) is True


def test_a_draining_queue_refuses_always(engine: Engine, db: Database) -> None:
    limit(db, state="draining")
    for enforce in (True, False):
        with refused("QU051", "'main' is draining"):
            guard(engine, enforce=enforce)


def test_one_event_is_let_pass_told_of_or_refused_as_guard_says(
    engine: Engine, db: Database
) -> None:
    engine.call("create_queue", namespace="default", queue="free")  # no limit of its own
    engine.call("change_queue", namespace="default", queue="main", settings='{"high_watermark": 2}')

    def publish() -> bool:
        [row] = engine.call("publish_one", namespace="default", type="a", payload="1")
        db.advance(seconds=1)
        return row.pressure

    assert [publish() for _ in range(4)] == [False, False, True, True]
    settings = '{"high_watermark": null, "max_queue_depth": 4}'
    engine.call("change_queue", namespace="default", queue="main", settings=settings)
    with refused("QU050", "'main' is full: 4 deliveries wait"):
        publish()
    engine.call("drain", namespace="default", queue="free")
    with refused("QU051", "'free' is draining"):
        publish()
    assert db.sql("select count(*) from headrace.events") == [(4,)]


def test_one_event_relies_on_a_count_that_is_young_and_below_the_limits(
    engine: Engine, db: Database
) -> None:
    stop_the_clock(db)  # a count is young for less than a second
    settings = '{"max_queue_depth": 1000000, "high_watermark": 50}'
    engine.call("change_queue", namespace="default", queue="main", settings=settings)

    def publish() -> tuple[bool, int]:
        [row] = engine.call("publish_one", namespace="default", type="a", payload="1")
        return row.pressure, counts(db)

    assert publish() == (False, 1)
    db.advance(seconds=0.3)
    assert publish() == (False, 1)
    db.sql("update headrace.depths set depth = 50")
    assert publish() == (True, 1)
    db.advance(seconds=1)
    assert publish() == (False, 2)
    db.advance(hours=-1)
    assert publish() == (False, 3)


def test_a_count_is_used_for_a_second_while_the_limit_is_far(engine: Engine, db: Database) -> None:
    stop_the_clock(db)
    limit(db, max_queue_depth=1_000_000)
    for _ in range(3):
        engine.publish({})
        assert guard(engine) is False
    assert db.sql("select depth from headrace.depths") == [(1,)]
    db.advance(seconds=1)
    assert guard(engine) is False
    assert db.sql("select depth from headrace.depths order by at") == [(1,), (3,)]


@requirement("G15")
def test_near_the_limit_everybody_counts(engine: Engine, db: Database) -> None:
    limit(db, max_queue_depth=10)
    engine.publish(*[{}] * 9)
    assert guard(engine) is False
    engine.publish({})
    with refused("QU050"):
        guard(engine)


def test_a_count_from_the_future_is_not_believed(engine: Engine, db: Database) -> None:
    limit(db, max_queue_depth=1_000_000)
    db.advance(hours=1)
    assert guard(engine) is False
    db.advance(hours=-1)
    engine.publish({})
    assert guard(engine) is False
    assert db.sql("select depth from headrace.depths order by at") == [(1,), (0,)]


def test_nobody_waits_for_a_publisher_that_counts_and_stays_open(
    engine: Engine, db: Database
) -> None:
    limit(db, max_queue_depth=10)
    other = Engine(db)
    other.connection.execute("set lock_timeout = '25ms'")
    with engine.connection.transaction():
        assert guard(engine) is False
        other.publish(*[{}] * 10)
        with refused("QU050"):
            guard(other)


def test_tick_counts_the_queues_that_have_a_limit_and_forgets_old_counts(
    engine: Engine, db: Database
) -> None:
    stop_the_clock(db)
    engine.tick()
    assert counts(db) == 0
    engine.call("change_queue", namespace="default", queue="main", settings='{"high_watermark": 5}')
    engine.publish(*[{}] * 3)
    db.sql("delete from headrace.depths")  # publish has counted, too
    for _ in range(3):
        engine.tick()
    assert db.sql("select depth from headrace.depths") == [(3,)]
    db.advance(seconds=1)
    engine.tick()
    assert counts(db) == 2
    db.advance(seconds=10.5)
    engine.tick()
    assert counts(db) == 1
    engine.call(
        "change_queue", namespace="default", queue="main", settings='{"high_watermark": null}'
    )
    assert counts(db) == 0


def test_there_is_capacity_below_the_watermark(engine: Engine, db: Database) -> None:
    def has_capacity(**arguments: Any) -> bool:
        [row] = engine.call("has_capacity", namespace="default", **arguments)
        return row[0]

    assert has_capacity()
    for settings in ('{"high_watermark": 2}', '{"high_watermark": null, "max_queue_depth": 2}'):
        engine.call("change_queue", namespace="default", queue="main", settings=settings)
        engine.publish({})
        assert has_capacity()
        engine.publish({})
        assert not has_capacity()
        assert not has_capacity(type="a", tags=["b"])
        engine.poll(max_events=2)
    engine.call("change_queue", namespace="default", queue="main", settings='{"types": ["a"]}')
    engine.publish({}, {})
    assert has_capacity(type="b")
    with refused("QU010"):
        engine.call("has_capacity", namespace="nowhere")
    engine.call("drain", namespace="default")
    with refused("QU051"):
        has_capacity()
    assert has_capacity(type="b")
