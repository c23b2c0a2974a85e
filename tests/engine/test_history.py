"""history: how a queue fared, written down by whoever ticks."""

import itertools
from datetime import timedelta
from typing import Any

import pytest

from headrace.testing.database import LET_RUN
from tests.database import Database
from tests.engine.backlog import fill
from tests.engine.footprint import footprint
from tests.engine.functions_helpers import Engine, refused, stop_the_clock

RANGES = {
    5: timedelta(minutes=15),
    20: timedelta(hours=1),
    120: timedelta(hours=6),
    480: timedelta(hours=24),
    3600: timedelta(days=7),
}


@pytest.fixture
def engine(db: Database) -> Engine:
    """Where the clock stands still, at the beginning of a step of every length."""
    stop_the_clock(db)
    db.sql("update headrace_test.stopped set at = date_bin('8 hours', at, 'epoch')")
    db.sql(LET_RUN)
    return Engine(db)


def history(engine: Engine, step: int = 5, **arguments: Any) -> list[Any]:
    return engine.call("history", namespace=engine.namespace, period=RANGES[step], **arguments)


def pass_time(engine: Engine, seconds: float, *, tick: bool = True) -> None:
    for _ in range(int(seconds // 5)):
        engine.db.advance(seconds=5)
        if tick:
            engine.tick()


@pytest.mark.parametrize("step", RANGES)
def test_there_is_a_point_for_every_step_of_the_range_and_no_more_than_180(
    engine: Engine, step: int
) -> None:
    engine.db.advance(seconds=7)
    points = history(engine, step)
    assert len(points) in (168, 180)
    assert {point.step for point in points} == {step}
    times = [point.at for point in points]
    assert [after - before for before, after in itertools.pairwise(times)] == [
        timedelta(seconds=step)
    ] * (len(points) - 1)
    end = points[-1].at + timedelta(seconds=points[-1].seconds)
    assert timedelta(0) <= engine.now() - end <= timedelta(seconds=5)
    assert all(point.seconds == step for point in points[:-1])
    assert [point.depth for point in points] == [None] * len(points)  # nobody has looked


def test_it_tells_what_waited_and_what_happened(engine: Engine) -> None:
    engine.tick()
    engine.publish(*[{"type": "a"}] * 30, {"type": "b", "max_retries": 0})
    pass_time(engine, 5)
    engine.finish(engine.poll(types=["a"], max_events=30), ms=[100] * 30)
    engine.end("fail", engine.claim(types=["b"]))
    pass_time(engine, 15)
    points = history(engine)[-4:]
    assert [point.published for point in points] == [31, 0, 0, 0]
    assert [point.completed for point in points] == [0, 30, 0, 0]
    assert [point.failed for point in points] == [0, 1, 0, 0]
    assert [point.dead for point in points] == [0, 1, 0, 0]
    assert [point.depth for point in points] == [0, 31, 0, 0]
    assert [point.oldest_age for point in points] == [None, 5, None, None]
    [measured] = [point for point in points if point.run_p50 is not None]
    assert measured.run_p50 == pytest.approx(0.1, rel=0.26)
    assert measured.wait_p50 == pytest.approx(5, rel=0.26)
    assert measured.wait_p50 <= measured.wait_p95 <= measured.wait_p99


@pytest.mark.parametrize("step", RANGES)
def test_the_same_is_in_the_charts_of_all_ranges(engine: Engine, step: int) -> None:
    engine.publish(*[{"type": "a"}] * 20)
    pass_time(engine, 5)
    engine.finish(engine.poll(max_events=20), ms=[100] * 20)
    engine.publish(*[{"type": "a"}] * 3)
    pass_time(engine, 20)
    engine.db.advance(seconds=5)  # so that the last step is over
    points = history(engine, step)
    assert sum(point.published for point in points) == 23
    assert sum(point.completed for point in points) == 20
    assert max(point.depth or 0 for point in points) == 20
    assert max(point.oldest_age or 0 for point in points) == 20
    assert max(point.run_p99 or 0 for point in points) == pytest.approx(0.1, rel=0.26)
    assert sum(point.depth is not None for point in points) == -(-25 // step)


def test_what_was_not_folded_yet_is_told_too(engine: Engine) -> None:
    engine.publish({}, {})
    engine.db.advance(seconds=5)
    assert sum(point.published for point in history(engine)) == 2


def test_where_nobody_looked_the_depth_is_not_known(engine: Engine) -> None:
    pass_time(engine, 10)
    pass_time(engine, 10, tick=False)
    pass_time(engine, 10)
    engine.db.advance(seconds=5)  # so that the last step is over
    assert [point.depth for point in history(engine)[-7:]] == [None, 0, 0, None, None, 0, 0]


def test_it_is_looked_once_in_five_seconds_whoever_ticks(engine: Engine) -> None:
    engine.publish({})
    engine.tick()
    engine.publish({})
    engine.tick()  # in the same five seconds
    engine.db.advance(seconds=5)
    assert history(engine)[-1].depth == 1


def test_where_to_look_takes_long_it_is_looked_less_often(engine: Engine) -> None:
    looks = "select count(*) from headrace.samplings where step = 5"

    def looks_after(seconds: float) -> int:
        before = engine.db.sql(looks)[0][0]
        pass_time(engine, seconds)
        return int(engine.db.sql(looks)[0][0] - before)

    assert looks_after(30) == 6
    # Once may be a hiccup, and then a tenth of the time is for it.
    for took, expected in (([3.0], 6), ([3.0, 2.0], 3), ([60.0, 60.0], 0)):
        engine.db.sql("update headrace.samplings set took = 0.01")
        for place, seconds in enumerate(took):
            engine.db.sql(
                "update headrace.samplings set took = %s where at = (select at from headrace.samplings"
                " where step = 5 order by at desc offset %s limit 1)",
                [seconds, place],
            )
        assert looks_after(30) == expected, took
    engine.db.advance(minutes=-20)  # whose clock was set back goes on, and forgets what was later
    engine.tick()
    assert looks_after(30) == 6


def test_one_looks_at_a_time_and_nobody_waits(engine: Engine) -> None:
    db = engine.db
    engine.publish({})
    with db.connect(autocommit=False) as other:
        other.execute("select headrace.tick()")
        db.sql("set lock_timeout = '25ms'")
        db.sql("select headrace.tick()")
        assert db.sql("select from headrace.samplings") == []
    db.advance(seconds=5)
    assert history(engine)[-1].depth == 1


def test_a_sample_of_many_queues_goes_on_in_the_next_tick(engine: Engine) -> None:
    db = engine.db
    for name in ("first", "second"):
        engine.call("create_queue", namespace=engine.namespace, queue=name)
    engine.publish({}, {})
    engine.tick()
    db.sql("delete from headrace.history")
    # As if that tick had had time for no more than one queue.
    db.sql("""
        update headrace.samplings set done = (select id from headrace.queues where name = 'first')
        where step = 5
    """)
    db.sql("delete from headrace.samplings where step <> 5")
    db.advance(seconds=10)
    assert {point.depth for point in history(engine, queue="second")} == {None}, "not known yet"
    [seen] = engine.call("ticking")
    engine.tick()
    [seen_again] = engine.call("ticking")
    assert seen_again.last_at - seen.last_at == timedelta(seconds=10)
    looked = db.sql("""
        select distinct q.name from headrace.history h join headrace.queues q on q.id = h.queue
    """)
    assert looked == [("second",)], "the others were before"
    depths = [point.depth for point in history(engine, queue="second")]
    assert [depth for depth in depths if depth is not None] == [2]
    engine.tick()
    db.advance(seconds=5)
    depths = [point.depth for point in history(engine, queue="second")]
    assert [depth for depth in depths if depth is not None] == [2, 2]


def test_a_queue_of_many_is_estimated(engine: Engine) -> None:
    fill(engine.db, 20_000)
    engine.tick()
    engine.db.advance(seconds=5)
    assert history(engine)[-1].depth == pytest.approx(20_000, rel=0.3)


@pytest.mark.new_database
@pytest.mark.parametrize("backlog", [50_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_to_look_costs_the_same_however_much_waits(engine: Engine, backlog: int) -> None:
    look = "select headrace._sample_history(headrace._now())"
    fill(engine.db, 5_000)
    few = footprint(engine.connection, look)[1]
    fill(engine.db, backlog)
    engine.db.advance(seconds=5)
    many = footprint(engine.connection, look)[1]
    assert engine.call("history", namespace="default") is not None
    # 250 pages of a sample, and the first 2,000 rows
    assert many.total.blocks <= few.total.blocks + 250 + 100, f"{many}\n{few}"


@pytest.mark.new_database
def test_to_read_it_costs_by_its_points(engine: Engine) -> None:
    engine.publish({})
    pass_time(engine, 50)
    before = footprint(engine.connection, "select * from headrace.history('default')")[1]
    fill(engine.db, 20_000)
    after = footprint(engine.connection, "select * from headrace.history('default')")[1]
    assert after.total.blocks <= before.total.blocks + 10


def test_what_is_older_than_its_chart_is_forgotten(engine: Engine) -> None:
    engine.publish({})
    pass_time(engine, 10)
    for days, steps in ((0, [5, 20, 120, 480, 3600]), (0.1, [120, 480, 3600]), (9, [])):
        engine.db.advance(days=days)
        engine.db.sql("select headrace._forget()")
        for table in ("history", "samplings"):
            kept = engine.db.sql(f"select distinct step from headrace.{table} order by step")
            assert [step for (step,) in kept] == steps
    assert engine.db.sql("select from headrace.moments") == []


def test_a_failure_to_look_is_warned_of_and_does_not_stop_the_tick(engine: Engine) -> None:
    db = engine.db
    warnings: list[str] = []
    engine.connection.add_notice_handler(lambda said: warnings.append(said.message_primary or ""))
    db.sql("alter table headrace.history add constraint no check (depth < 1)")
    try:
        engine.publish({}, {"delay": 1})
        db.advance(seconds=5)
        assert engine.tick().due == 1
        assert engine.tick().due == 0  # nor is it tried again every second
    finally:
        db.sql("alter table headrace.history drop constraint no")
    [warning] = warnings
    assert "sample the queues has failed" in warning


@pytest.mark.parametrize("period", [timedelta(days=8), timedelta(seconds=1), None])
def test_a_period_is_between_five_seconds_and_a_week(
    engine: Engine, period: timedelta | None
) -> None:
    with refused("QU001", "from five seconds to a week"):
        engine.call("history", namespace="default", period=period)


@pytest.mark.parametrize(
    ("sizes", "share", "seconds"),
    [
        ([], 0.5, None),
        (None, 0.5, None),
        ([10], 0.5, 0.0005),
        ([0, 0, 0, 0, 8], 1.0, 0.0025198420997897464),
        ([5, 0, 0, 0, 0, 0, 0, 5], 0.99, 0.005),
    ],
)
def test_percentiles_are_exact_to_the_bucket(
    engine: Engine, sizes: list[int] | None, share: float, seconds: float | None
) -> None:
    [(found,)] = engine.db.sql(
        "select headrace._percentiles(%s::int[], array[%s]::float8[])", [sizes, share]
    )
    assert found == (None if seconds is None else [pytest.approx(seconds, rel=0.01)])


def test_every_time_is_in_the_bucket_whose_bounds_hold_it(engine: Engine) -> None:
    outside = engine.db.sql("""
        with time as (select exp(n / 20.0)::float8 / 1000 as s from generate_series(0, 380) n),
        bucket as (select s, headrace._latency_bucket(s) as b from time)
        select s, b from bucket
        where not (s * 1000 >= power(2, (b - 2) / 3.0::float8) * (1 - 1e-9)
                   and s * 1000 < power(2, (b - 1) / 3.0::float8) * (1 + 1e-9))
    """)
    assert outside == []
    assert engine.db.sql("select headrace._latency_bucket(0), headrace._latency_bucket(1e12)") == [
        (1, 90)
    ]
