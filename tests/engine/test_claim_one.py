"""A claim of one delivery by hints goes a shorter way: it gives what the long way gives."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.database import Database
from tests.engine.functions_helpers import Engine, stop_the_clock

OWN = {"lease", "lease_token", "hints", "id"}  # in which two claims differ


@pytest.fixture
def engine(db: Database) -> Engine:
    stop_the_clock(db)
    engine = Engine(db)
    engine.connection.execute("set track_functions = 'pl'")
    return engine


def hints_of(engine: Engine, *types: str) -> str:
    """Hints that name the routes of these types, which have no work now."""
    engine.publish(*({"type": type} for type in types))
    claims = engine.poll(max_events=len(types))
    assert len(claims) == len(types)
    engine.finish(claims)
    return str(claims[0].hints)


def long_ways(engine: Engine) -> int:
    """How often this session has lately called _claim; only differences in a transaction count."""
    [calls] = engine.connection.execute(
        "select coalesce(sum(pg_stat_get_xact_function_calls(p.oid)), 0)::int from pg_proc p "
        "where p.pronamespace = 'headrace'::regnamespace and p.proname = '_claim'"
    ).fetchone()
    return int(calls)


@contextmanager
def long_way(engine: Engine, times: int) -> Iterator[None]:
    """In its transaction so many claims go the long way."""
    with engine.connection.transaction():
        before = long_ways(engine)
        yield
        assert long_ways(engine) - before == times


def claimed_both_ways(engine: Engine, hints: str, verb: str, **arguments: Any) -> tuple[Any, Any]:
    """The rows of a claim by the short way, and by the long one in its place; with what either
    stores."""
    seen = []
    for sweep in (False, True):
        with engine.connection.transaction(force_rollback=True):
            with long_way(engine, times=int(sweep)):
                [row] = engine.call(
                    verb, namespace="default", hints=hints, sweep=sweep, suspects=False, **arguments
                )
            [lease] = engine.connection.execute(
                "select to_jsonb(l) - '{id,token}'::text[] from headrace.leases l where id = %s",
                [row.lease],
            ).fetchone()
            held = engine.connection.execute(
                "select to_jsonb(h) - '{lease,token}'::text[] from headrace.held h"
            ).fetchall()
            told = {name: value for name, value in row._asdict().items() if name not in OWN}
            seen.append((told, lease, held))
    short, long = seen
    return short, long


@pytest.mark.parametrize("verb", ["poll", "poll_batch"])
@pytest.mark.parametrize("each", [False, True])
def test_the_short_way_gives_what_the_long_way_gives(
    engine: Engine, db: Database, verb: str, each: bool
) -> None:
    hints = hints_of(engine, "a")
    plain = {"type": "a", "payload": {"n": [1, "é"]}}
    described = plain | {"title": "One", "source": {"name": "here"}, "max_retries": 9}
    for event in (plain, described):
        engine.publish(event)
        arguments: dict[str, Any] = {"each": each, "worker": "w", "dispatch": "collect"}
        short, long = claimed_both_ways(engine, hints, verb, **arguments)
        assert short == long
        short, long = claimed_both_ways(engine, hints, verb, each=each, lease="5 s")
        assert short == long
        engine.end("fail", engine.claim(each=each), retry_in="1 second")
        db.advance(seconds=2)
        engine.call("tick")  # now it is a second attempt, and came back later than it was published
        short, long = claimed_both_ways(engine, hints, verb, each=each)
        assert short == long
        assert short[0]["attempt"] == 2
        engine.end("complete", engine.claim(each=each))


def test_the_most_urgent_route_comes_first(engine: Engine) -> None:
    engine.publish({"type": "late", "priority": 7}, {"type": "soon", "priority": 2})
    claims = engine.poll(max_events=2)
    engine.finish(claims)
    for _ in range(10):
        engine.publish({"type": "late", "priority": 7}, {"type": "soon", "priority": 2})
    with long_way(engine, times=0):
        given = [engine.claim(hints=claims[0].hints).type for _ in range(20)]
    assert given == ["soon"] * 10 + ["late"] * 10


@pytest.mark.parametrize(
    "soon",
    [
        pytest.param([{"type": "soon", "priority": 2, "payloads": [{}] * 40}], id="a pack"),
        pytest.param([{"type": "soon", "priority": 2, "key": "k"}] * 2, id="an ordering key"),
    ],
)
def test_nothing_less_urgent_comes_before_what_the_short_way_cannot_take(
    engine: Engine, soon: list[dict[str, Any]]
) -> None:
    engine.publish({"type": "late", "priority": 7}, {"type": "soon", "priority": 2})
    claims = engine.poll(max_events=2)
    engine.finish(claims)
    engine.publish({"type": "late", "priority": 7})
    engine.publish(*soon)
    assert engine.claim(hints=claims[0].hints).type == "soon"


STRICT = {"order": "oldest"}
LIMITED = {"limits": [{"scope": "queue", "at_once": 1}]}


@pytest.mark.parametrize(
    "events",
    [
        [{"type": "a"}] * 40,  # a pack
        [{"type": "a", "key": "k"}, {"type": "a", "key": "k"}],
    ],
    ids=["pack", "ordering key"],
)
def test_what_is_no_single_delivery_goes_the_long_way(
    engine: Engine, events: list[dict[str, Any]]
) -> None:
    hints = hints_of(engine, "a")
    ids = engine.publish(*events)
    with long_way(engine, times=1):
        claimed = engine.claim(hints=hints)
    assert claimed.id == ids[0]
    engine.finish([claimed])
    assert engine.claim().id == ids[1]


@pytest.mark.parametrize("settings", [STRICT, LIMITED], ids=["strict order", "limits"])
def test_a_queue_with_an_order_or_limits_goes_the_long_way(
    engine: Engine, settings: dict[str, Any]
) -> None:
    hints = hints_of(engine, "a")
    [first, _] = engine.publish({"type": "a"}, {"type": "a"})
    engine.call("change_queue", namespace="default", queue="main", settings=Jsonb(settings))
    with long_way(engine, times=1):
        assert engine.claim(hints=hints).id == first


def test_a_paused_queue_gives_nothing_by_hints(engine: Engine) -> None:
    hints = hints_of(engine, "a")
    engine.publish({"type": "a"})
    engine.call("pause", namespace="default", queue="main")
    assert engine.poll(hints=hints) == []


@pytest.mark.parametrize(
    "wrong",
    [{"lease": "8 days"}, {"lease": "1 ms"}, {"worker": "w" * 201}, {"dispatch": "some"}],
    ids=str,
)
def test_wrong_arguments_are_refused_by_hints_too(engine: Engine, wrong: dict[str, Any]) -> None:
    hints = hints_of(engine, "a")
    engine.publish({"type": "a"})
    with pytest.raises(psycopg.DatabaseError) as refused:
        engine.poll(hints=hints, **wrong)
    assert refused.value.sqlstate == "QU001"


def test_a_claim_by_hints_needs_read_committed_too(engine: Engine) -> None:
    hints = hints_of(engine, "a")
    engine.publish({"type": "a"})
    engine.connection.execute("set default_transaction_isolation = 'repeatable read'")
    with pytest.raises(psycopg.DatabaseError) as refused:
        engine.poll(hints=hints)
    assert refused.value.sqlstate == "QU030"


def test_an_event_that_is_gone_is_dead_lettered_by_the_short_way_too(engine: Engine) -> None:
    hints = hints_of(engine, "a")
    [gone] = engine.publish({"type": "a"})
    engine.connection.execute("delete from headrace.events where id = %s", [gone])
    assert engine.call("poll_batch", namespace="default", hints=hints) == []
    [letter] = engine.call("dead_letters", namespace="default")
    assert (letter.id, letter.reason) == (gone, "Its event is no longer stored")
