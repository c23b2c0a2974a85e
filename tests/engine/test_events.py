"""events and count_events: the list, page by page; deliveries: an event in all its queues."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.database import Database
from tests.engine.backlog import Consumer, fill
from tests.engine.footprint import footprint
from tests.engine.functions_helpers import Engine, refused, stop_the_clock
from tests.requirements import requirement

AT_ONCE = {"kind": "fixed", "delay": 0}
STATUSES = ("PENDING", "PROCESSING", "COMPLETED", "COMPLETED_WITH_ERRORS", "FAILED", "CANCELLED")

# What publish makes of many events of one type, and of those with ordering keys.
PACK = """
with gone as (
    delete from headrace.ready r where r.seq = r.event and r.attempts = 0 and r.pack is null and headrace._pack(r.event) = headrace._pack(%s)
    returning r.*
)
insert into headrace.ready (event, created_at, route, seq, queue, priority, pack)
select min(event), created_at, route, min(event), queue, priority, array_agg(event order by event)
from gone group by created_at, route, queue, priority
"""
KEY = """
with gone as (delete from headrace.ready r where r.event = %s and r.pack is null returning r.*),
keyed as (update headrace.events e set key = 'k' from gone g where e.id = g.event)
insert into headrace.keyed (queue, key, event, created_at, route, attempts, priority, failures, crashes, suspect)
select queue, 'k', event, created_at, route, attempts, priority, failures, crashes, suspect from gone
"""


@pytest.fixture
def engine(db: Database) -> Engine:
    stop_the_clock(db)
    return Engine(db)


def listed(engine: Engine, **filter: Any) -> list[Any]:
    return engine.call("events", namespace=engine.namespace, **{"limit": 1000, **filter})


def ids(engine: Engine, **filter: Any) -> list[int]:
    return [event.id for event in listed(engine, **filter)]


def count(engine: Engine, **filter: Any) -> tuple[int, bool]:
    [counted] = engine.call("count_events", namespace=engine.namespace, **filter)
    return tuple(counted)


def live_for_a_while(engine: Engine, db: Database, seed: int) -> list[int]:
    """Events of four types and three tags, some in every place they can be in."""
    chance = random.Random(seed)
    engine.connection.execute("select setseed(%s)", [seed / 100])  # claims draw lots, too
    published: list[int] = []
    for _ in range(12):
        published += engine.publish(
            *(
                {
                    "type": f"t.{chance.randrange(4)}",
                    "tags": chance.sample(["x", "y", "z"], chance.randrange(3)),
                    "priority": chance.choice([0, 5]),
                    "max_retries": chance.choice([0, 1, 3]),
                    "backoff": chance.choice([AT_ONCE, {"kind": "fixed", "delay": 1000}]),
                    **({"delay": 600} if chance.random() < 0.1 else {}),
                }
                for _ in range(chance.randrange(1, 30))
            )
        )
        db.advance(seconds=1)
        claims = engine.poll(max_events=chance.randrange(1, 20), suspects=False)
        claims += engine.poll(max_events=3, each=True, suspects=False, lease="5 seconds")
        for claim in claims:
            end = chance.choice(["complete", "complete", "fail", "release", "finalize", "leave"])
            if end == "finalize":
                engine.end("finalize", claim, errors=["no"])
            elif end != "leave":
                engine.end(end, claim)
        for id in chance.sample(published, 3):
            if engine.event(id).status in ("PENDING", "PROCESSING"):
                engine.call("cancel", namespace=engine.namespace, event_id=id)
        db.advance(seconds=2)
        engine.tick()
    for id in chance.sample(published, 20):
        db.sql(KEY, [id])
    for id in chance.sample(published, 3):
        db.sql(PACK, [id])
    return published


def told(engine: Engine, published: list[int]) -> list[Any]:
    """Each event as `event` tells it, which shows it one by one."""
    return [engine.event(id) for id in published]


@requirement("API-14", "API-13")
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.rest) for seed in range(1, 4))]
)
def test_a_list_has_what_each_event_tells_of_itself(
    engine: Engine, db: Database, seed: int
) -> None:
    events = told(engine, live_for_a_while(engine, db, seed))
    middle = events[len(events) // 2].created_at
    filters: list[tuple[dict[str, Any], Callable[[Any], bool]]] = [
        ({}, lambda event: True),
        ({"types": ["t.1", "*.2"]}, lambda event: event.type in ("t.1", "t.2")),
        ({"types": ["none"]}, lambda event: False),
        ({"tags": ["x", "y"]}, lambda event: bool({"x", "y"} & set(event.tags or ()))),
        (
            {"tags": ["x", "y"], "all_tags": True},
            lambda event: {"x", "y"} <= set(event.tags or ()),
        ),
        ({"since": middle}, lambda event: event.created_at >= middle),
        ({"until": middle}, lambda event: event.created_at < middle),
        ({"key": "k"}, lambda event: event.key == "k"),
    ]
    seen = {event.status for event in events}
    assert seen == set(STATUSES)
    for statuses in [None, *([status] for status in STATUSES), ["PENDING", "COMPLETED", "FAILED"]]:
        for filter, selects in filters:
            given = {**filter, "statuses": statuses}
            expected = [e for e in events if selects(e) and e.status in (statuses or STATUSES)]
            assert listed(engine, payload=True, **given) == expected[::-1], given
            assert listed(engine, payload=True, oldest_first=True, **given) == expected, given
            assert count(engine, **given) == (len(expected), True), given


@requirement("API-14")
def test_pages_follow_each_other(engine: Engine, db: Database) -> None:
    live_for_a_while(engine, db, seed=7)
    for types in (None, ["t.1", "t.3"]):
        for statuses in (None, ["PENDING"], ["COMPLETED"], ["FAILED", "PROCESSING"]):
            pages_follow_each_other(engine, {"statuses": statuses, "types": types})


def pages_follow_each_other(engine: Engine, filter: dict[str, Any]) -> None:
    whole = ids(engine, **filter)
    assert len(whole) > 6
    for oldest_first in (False, True):
        expected = sorted(whole, reverse=not oldest_first)
        ask = {**filter, "limit": 5, "oldest_first": oldest_first}
        by_offset = [
            id for offset in range(0, len(whole) + 5, 5) for id in ids(engine, **ask, offset=offset)
        ]
        assert by_offset == expected
        by_id: list[int] = []
        cursor = {}
        while page := ids(engine, **ask, **cursor):
            by_id += page
            cursor = {"after" if oldest_first else "before": page[-1]}
        assert by_id == expected
    between = ids(engine, **filter, after=whole[-2], before=whole[1])
    assert between == whole[2:-2]


@requirement("API-14")
def test_it_is_the_newest_twenty_and_without_payloads(engine: Engine) -> None:
    published = engine.publish(*({"payload": n} for n in range(25)))
    page = engine.call("events", namespace="default")
    assert [event.id for event in page] == published[:4:-1]
    assert {event.payload for event in page} == {None}
    assert [event.payload for event in listed(engine, payload=True)] == list(range(25))[::-1]


@requirement("API-21", "API-17")
@pytest.mark.parametrize("each", [False, True])
def test_orphans_have_been_in_work_for_long_without_a_sign(
    engine: Engine, db: Database, each: bool
) -> None:
    engine.publish({"type": "a"}, {"type": "b"}, {"type": "c"})
    first = engine.claim(types=["a"], each=each, lease="1 hour")
    db.advance(seconds=20)
    second = engine.claim(types=["b"], each=each, lease="1 hour")
    assert ids(engine, orphaned=True) == []
    db.advance(seconds=11)
    assert ids(engine, orphaned=True) == [first.id]
    assert count(engine, orphaned=True) == (1, True)
    assert ids(engine, orphaned=True, statuses=["PENDING"]) == []
    assert ids(engine, orphaned=True, types=["b"]) == []
    assert ids(engine, orphaned=True, orphan_after="5 seconds") == [second.id, first.id]
    # Whatever the log says about it since is a sign of life: it was started, for one.
    db.sql(
        "insert into headrace.outcomes (id, at, bucket, namespace, queue, action, events, attempts)"
        " select nextval('headrace.ids'), headrace._now(), headrace._bucket(%s), namespace, id, 'STARTED', %s, '{1}'"
        " from headrace.queues where space = 'default'",
        [first.id, [first.id]],
    )
    assert ids(engine, orphaned=True) == []
    assert engine.event(first.id).status == "PROCESSING"


def test_what_was_brought_back_is_not_listed_as_ended(engine: Engine) -> None:
    [id] = engine.publish({"max_retries": 0})
    engine.end("fail", engine.claim())
    assert ids(engine, statuses=["FAILED"]) == [id]
    engine.call("reset", namespace="default", event_id=id)
    assert ids(engine, statuses=["FAILED"]) == []
    assert ids(engine, statuses=["PENDING"]) == [id]


def test_the_total_is_exact_to_a_bound(engine: Engine) -> None:
    engine.publish(*({"type": f"t{n % 2}"} for n in range(30)), {"delay": 10})
    claims = engine.poll(max_events=12, types=["t0"])
    engine.finish(claims[:6])
    for filter, total in [({}, 31), ({"statuses": ["PENDING"]}, 19), ({"types": ["t0"]}, 15)]:
        assert count(engine, **filter, most=total) == (total, True)
        assert count(engine, **filter, most=total - 1) == (total - 1, False)


@requirement("G16")
def test_namespaces_are_told_apart(engine: Engine, db: Database) -> None:
    engine.call("create_namespace", namespace="other")
    other = Engine(db, "other")
    engine.publish({}, {})
    [theirs] = other.publish({})
    assert ids(other) == [theirs]
    assert count(other) == (1, True)


def test_queues_are_told_apart(engine: Engine, db: Database) -> None:
    engine.call("create_queue", namespace="default", queue="second", types=["a"])
    [first, second] = engine.publish({"type": "a"}, {})
    engine.end("complete", engine.claim(types=["a"]))
    assert ids(engine) == [second, first]
    assert ids(engine, queue="second") == [first]
    assert count(engine, queue="second") == (1, True)
    both = engine.call("deliveries", namespace="default", event_id=first)
    assert [(row.queue, row.status, row.attempts) for row in both] == [
        ("main", "COMPLETED", 1),
        ("second", "PENDING", 0),
    ]
    assert [row.queue for row in engine.call("deliveries", namespace="default", event_id=second)] == ["main"]  # fmt: skip
    assert engine.call("deliveries", namespace="default", event_id=second + 100) == []
    with refused("QU010"):
        engine.call("deliveries", namespace="nowhere", event_id=first)


def test_crashes_are_told_after_the_end(engine: Engine, db: Database) -> None:
    [id] = engine.publish({"max_retries": 5})
    for crashes in (0, 1, 2):
        engine.claim()
        db.advance(minutes=2)
        engine.tick()
        assert engine.event(id).crashes == crashes
    engine.end("complete", engine.claim())
    told = engine.event(id)
    assert (told.status, told.crashes, told.attempts) == ("COMPLETED", 2, 4)


@pytest.mark.parametrize(
    "wrong",
    [
        {"statuses": ["DONE"]},
        {"statuses": ["PENDING", None]},
        {"statuses": []},
        {"types": []},
        {"tags": [None]},
        {"limit": 0},
        {"limit": 1001},
        {"limit": None},
        {"offset": -1},
        {"offset": 10_001},
        {"offset": None},
        {"orphaned": True, "orphan_after": "-1 second"},
    ],
    ids=str,
)
def test_what_cannot_be_asked_is_refused(engine: Engine, wrong: dict[str, Any]) -> None:
    with refused("QU001"):
        listed(engine, **wrong)


def test_an_unknown_namespace_or_queue_is_refused(engine: Engine) -> None:
    for function in ("events", "count_events"):
        with refused("QU010"):
            engine.call(function, namespace="nowhere")
        with refused("QU011"):
            engine.call(function, namespace="default", queue="other")


# What it costs ---------------------------------------------------------------------------------


@pytest.mark.new_database
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("pairs", [5, 1])
def test_a_page_costs_the_same_however_much_there_is(db: Database, known: bool, pairs: int) -> None:
    fill(db, 30_000, routes=pairs)
    consumer = Consumer(db, max_events=1000)
    for _ in range(10):
        consumer.claim()
        consumer.complete()
    fill(db, 1_000, kind="later", delay="1 hour")
    if known:
        db.sql("analyze")
    asked = [
        "", ", statuses => '{PENDING}'", ", statuses => '{PENDING}', types => '{work.0}'",
        ", statuses => '{COMPLETED}'", ", statuses => '{FAILED}'", ", oldest_first => true",
        ", statuses => '{PROCESSING}'", ", statuses => '{PENDING}', oldest_first => true",
    ]  # fmt: skip
    for filter in asked:
        rows, touched = footprint(
            consumer.connection, f"select * from headrace.events('default'{filter})"
        )
        assert len(rows) in (0, 20)
        # Of each pair fifty are fetched at a time, and for each event its block of 128 ids is looked through.
        assert touched.total.entries < 3_000, f"{filter}\n{touched}"


def test_a_page_beyond_many_pairs_is_right_too(db: Database, engine: Engine) -> None:
    fill(db, 3_000, routes=1500)
    newest = db.sql("select id from headrace.events order by id desc limit 30")
    assert ids(engine, statuses=["PENDING"], limit=30) == [id for (id,) in newest]
