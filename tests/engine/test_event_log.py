"""event_log, the view and the trail of one event: everything that happened, numbered for ever."""

import random
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from tests.database import Database
from tests.engine.functions_helpers import Engine, refused, stop_the_clock
from tests.requirements import requirement

AT_ONCE = {"kind": "fixed", "delay": 0}


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


def log(db: Database) -> dict[int, tuple[Any, ...]]:
    """The whole log by its numbers."""
    rows = db.sql("""select id, event_id, namespace, queue, action, worker_id, attempt, status_code,
                            error_message, execution_time_ms, created_at, due_at, superseded_by
                     from headrace.event_log""")
    entries = {row[0]: row for row in rows}
    assert len(entries) == len(rows), "a number is given once"
    return entries


@requirement("EQ-1", "EQ-11", "EQ-14", "API-15")
def test_the_trail_tells_who_did_what_and_when(engine: Engine, db: Database) -> None:
    stop_the_clock(db)
    start = engine.now()
    [id] = engine.publish({"producer": "shop:1", "max_retries": 2, "backoff": AT_ONCE})
    db.advance(seconds=1)
    claim = engine.claim(worker="w1", each=True)
    db.advance(seconds=1)
    engine.end("fail", claim, error="Boom", ms=30, code=503)
    db.advance(seconds=1)
    claim = engine.claim(worker="w2")
    db.advance(seconds=1)
    engine.end("fail", claim, error="Boom again", ms=31, code=500)

    assert [
        (e.action, e.queue, e.worker_id, e.attempt, e.status_code, e.error_message, e.execution_time_ms, e.created_at)
        for e in engine.trail(id)
    ] == [
        ("EMITTED", None, "shop:1", None, None, None, None, start),
        ("PICKED", "main", "w1", 1, None, None, None, start + timedelta(seconds=1)),
        ("FAILED", "main", "w1", 1, 503, "Boom", 30, start + timedelta(seconds=2)),
        ("PICKED", "main", "w2", 2, None, None, None, start + timedelta(seconds=3)),
        ("FAILED", "main", "w2", 2, 500, "Boom again", 31, start + timedelta(seconds=4)),
        ("DEAD_LETTERED", "main", "w2", 2, None, None, None, start + timedelta(seconds=4)),
    ]  # fmt: skip


@requirement("EQ-4", "EB-3", "EB-9")
def test_every_end_is_logged_with_its_status(engine: Engine, db: Database) -> None:
    ids = engine.publish(*({"payload": n} for n in range(5)))
    claims = engine.poll(max_events=5)
    engine.end("complete", claims[0])
    engine.end("finalize", claims[1], errors=["x"])
    engine.end("finalize", claims[2], success=False)
    engine.end("release", claims[3])
    db.advance(minutes=2)
    engine.tick()
    assert [engine.actions(id)[2:] for id in ids] == [
        ["COMPLETED"],
        ["COMPLETED_WITH_ERRORS", "DEAD_LETTERED"],
        ["FAILED", "DEAD_LETTERED"],
        ["RELEASED"],
        ["ABANDONED"],
    ]


def test_an_event_without_a_producer_was_emitted_by_nobody_in_particular(engine: Engine) -> None:
    [id] = engine.publish({})
    [emitted] = engine.trail(id)
    assert (emitted.action, emitted.worker_id, emitted.id) == ("EMITTED", None, id * 1024)


def test_the_number_of_an_entry_is_its_rows_and_its_place_in_it(
    engine: Engine, db: Database
) -> None:
    ids = engine.publish({}, {}, {})
    claims = engine.poll(max_events=3)
    engine.finish(claims)
    [(outcome,)] = db.sql("select id from headrace.outcomes")
    for n, id in enumerate(ids):
        assert [entry.id for entry in engine.trail(id)] == [
            id * 1024,
            claims[0].lease * 1024 + n,
            outcome * 1024 + n,
        ]


@requirement("G17")
@pytest.mark.parametrize("each", [False, True])
def test_a_picked_keeps_its_number_when_it_moves_from_the_lease_to_the_outcome(
    engine: Engine, db: Database, each: bool
) -> None:
    for end in ("complete", "fail", "release", "finalize", "abandon"):
        engine.publish(*({"type": end} for _ in range(5)))
        claims = engine.poll(max_events=5, each=each, worker="w", types=[end], lease="1 second")
        before = log(db)
        for n in (3, 0, 4) if end != "abandon" else ():
            engine.end(end, claims[n], **({"errors": ["x"]} if end == "finalize" else {}))
            assert before.items() <= log(db).items()
        db.advance(seconds=2)
        engine.tick()
        after = log(db)
        assert before.items() <= after.items()
        assert len(after) == len(before) + 5 + (3 if end == "finalize" else 0)


@requirement("G17")
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.rest) for n in (1, 2))])
def test_whatever_happens_the_log_only_grows_at_its_end(
    engine: Engine, db: Database, seed: int
) -> None:
    """A random life: every entry stays as it was written, and new ones have larger numbers."""
    chance = random.Random(seed)
    db.sql(
        "select setval('headrace.ids', headrace._id_at(1000))"
    )  # so that batches span two buckets
    claims: list[Any] = []
    before: dict[int, tuple[Any, ...]] = {}
    for _ in range(60):
        match chance.randrange(7):
            case 0:
                n = chance.randint(1, 5)
                engine.publish(
                    *({"type": f"t{n % 2}", "max_retries": 2, "backoff": AT_ONCE} for n in range(n))
                )
            case 1 | 2:
                claims += engine.poll(max_events=chance.randint(1, 6), each=chance.random() < 0.5)
            case 3 | 4 | 5:
                chance.shuffle(claims)
                some, claims = claims[:4], claims[4:]
                actions = ("complete", "fail", "release")
                others = {str(n): {"action": chance.choice(actions)} for n in range(1, len(some))}
                engine.finish(some, others, leases=chance.random() < 0.5)
            case 6:
                db.advance(seconds=chance.choice((1, 40)))
                engine.tick()
        after = log(db)
        assert before.items() <= after.items()
        new = after.keys() - before.keys()
        assert not new or not before or min(new) > max(before)
        before = after
    assert {entry[4] for entry in before.values()} >= {"EMITTED", "PICKED", "COMPLETED", "FAILED"}


def test_the_view_and_the_trail_agree(engine: Engine, db: Database) -> None:
    ids = engine.publish(*({"payload": n, "backoff": AT_ONCE, "max_retries": 2} for n in range(6)))
    for each in (False, True):
        claims = engine.poll(max_events=4, each=each, worker=f"each {each}")
        engine.finish(claims[:3], {"2": {"action": "fail", "error": "x"}}, ms=[1, 2, 3])
    db.advance(minutes=2)
    engine.tick()
    entries = log(db)
    for id in ids:
        trail = [(e.id, id, "default", *e[1:]) for e in engine.trail(id)]
        assert trail == sorted(entry for entry in entries.values() if entry[1] == id)
    assert sum(len(engine.trail(id)) for id in ids) == len(entries)


def test_a_trail_is_in_the_order_of_what_happened(engine: Engine, db: Database) -> None:
    [id] = engine.publish({"max_retries": 10, "backoff": AT_ONCE})
    for action in ("release", "fail", "release", "fail", "complete"):
        db.advance(seconds=1)
        engine.end(action, engine.claim())
    trail = engine.trail(id)
    assert [e.attempt for e in trail] == [None, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert all(a.id < b.id and a.created_at <= b.created_at for a, b in pairwise(trail))


def test_the_trail_of_one_event_is_found_among_many_in_its_bucket(engine: Engine) -> None:
    ids = engine.publish(*({"payload": n} for n in range(300)))
    engine.finish(engine.poll(max_events=300), ms=list(range(300)))
    for n in (0, 1, 150, 299):
        assert [entry.execution_time_ms for entry in engine.trail(ids[n])] == [None, None, n]


def test_an_event_that_is_not_there_has_no_trail(engine: Engine) -> None:
    [id] = engine.publish({})
    for wrong in (id + 1, 0, -1, 2**63 - 1, -(2**63), None):
        assert engine.trail(wrong) == []


def test_an_unknown_namespace_is_refused(engine: Engine) -> None:
    for namespace in ("nowhere", "", None):
        with refused("QU010"):
            engine.call("event_log", namespace=namespace, event_id=1)
