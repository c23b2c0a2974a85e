"""report, start and heartbeat: for workers that know an event and their own name."""

from datetime import timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.database import Database
from tests.engine.functions_helpers import Engine, contents, differences, refused, stop_the_clock
from tests.requirements import requirement

FAIL = {"action": "fail", "error": "no"}


@pytest.fixture
def engine(db: Database) -> Engine:
    stop_the_clock(db)
    return Engine(db)


def claim(engine: Engine, worker: str, size: int = 1, *, each: bool = True) -> list[Any]:
    engine.publish(*[{}] * size)
    return engine.poll(size, each=each, worker=worker)


def report(engine: Engine, *items: tuple[int, int | None, str | None], **given: Any) -> list[Any]:
    others = given.pop("others", None)
    rows = engine.call(
        "report",
        namespace=engine.namespace,
        queue="main",
        events=[event for event, _, _ in items],
        attempts=[attempt for _, attempt, _ in items],
        workers=[worker for _, _, worker in items],
        others=None if others is None else Jsonb(others),
        **given,
    )
    assert sorted(row.item for row in rows) == list(range(1, len(items) + 1))
    return sorted(rows, key=lambda row: row.item)


def start(engine: Engine, event: int, **given: Any) -> Any:
    [(at,)] = engine.call("start", namespace=engine.namespace, event=event, **given)
    return at


def heartbeat(engine: Engine, event: int, **given: Any) -> Any:
    [row] = engine.call("heartbeat", namespace=engine.namespace, event=event, **given)
    return row


@requirement("G6", "API-20")
@pytest.mark.parametrize("each", [True, False], ids=["held", "batch"])
def test_a_name_means_the_claim_that_it_holds(engine: Engine, each: bool) -> None:
    one, two = claim(engine, "a:1", 2, each=each)
    done, failed = report(
        engine, (one.id, None, "a:1"), (two.id, None, "a:1"), ms=[7, None], codes=[200, 500],
        others={"2": FAIL},
    )  # fmt: skip
    now = engine.now()
    assert done == (1, "counted", "COMPLETED", now, None, None, None)
    assert failed == (2, "counted", "FAILED", now, now + timedelta(minutes=5), 1, 3)
    assert [e.created_at for e in engine.trail(one.id)][-1] == now
    assert engine.event(one.id).status == "COMPLETED"


def test_the_last_claim_is_meant_where_none_is_held(engine: Engine, db: Database) -> None:
    [claimed] = claim(engine, "a:1")
    first = report(engine, (claimed.id, None, "a:1"), others={"1": {**FAIL, "retry_in": 0}})
    [again] = engine.poll(each=True, worker="b:1")
    before = contents(db)
    [repeated] = report(engine, (claimed.id, None, "a:1"), others={"1": FAIL})
    assert (repeated.verdict, repeated[2:]) == ("repeated", first[0][2:])
    [conflict] = report(engine, (claimed.id, None, "a:1"))
    assert (conflict.verdict, conflict.action) == ("conflict", "FAILED")
    [lost] = report(engine, (claimed.id, None, "nobody"))
    assert (lost.verdict, lost.action) == ("lost", None)
    assert differences(before, contents(db)) == set()
    [counted] = report(engine, (claimed.id, None, "b:1"))
    assert (counted.verdict, again.attempt) == ("counted", 2)


def test_an_attempt_that_is_named_counts_for_its_holder(engine: Engine) -> None:
    [claimed], [other] = claim(engine, "a:1"), claim(engine, "a:1")
    rows = [
        *report(engine, (claimed.id, 2, "a:1")),
        *report(engine, (claimed.id, 1, "somebody else")),
        *report(engine, (claimed.id, 1, "a:1")),
        *report(engine, (other.id, 1, None)),
    ]
    assert [row.verdict for row in rows] == ["lost", "lost", "counted", "counted"]


@requirement("G7", "G8")
def test_what_is_named_twice_ends_once(engine: Engine) -> None:
    [claimed] = claim(engine, "a:1")
    item = (claimed.id, None, "a:1")
    rows = report(engine, item, item, item, others={"3": FAIL})
    assert [row.verdict for row in rows] == ["counted", "repeated", "conflict"]
    assert {row.at for row in rows} == {engine.now()}
    assert engine.actions(claimed.id) == ["EMITTED", "PICKED", "COMPLETED"]


def test_a_lost_claim_does_not_keep_the_others_from_ending(engine: Engine, db: Database) -> None:
    [slow] = claim(engine, "a:1")
    db.advance(seconds=61)
    engine.tick()
    [quick] = claim(engine, "b:1")
    rows = report(engine, (slow.id, None, "a:1"), (quick.id, None, "b:1"), (10**9, None, "b:1"))
    assert [row.verdict for row in rows] == ["lost", "counted", "lost"]


def test_the_next_of_an_ordering_key_gets_its_turn(engine: Engine) -> None:
    first, second = engine.publish({"key": "k"}, {"key": "k"})
    engine.poll(each=True, worker="a:1")
    report(engine, (first, None, "a:1"))
    assert engine.claim(worker="a:1").id == second


def test_a_report_must_be_whole(engine: Engine, db: Database) -> None:
    [claimed] = claim(engine, "a:1")
    given = {"namespace": "default", "queue": "main", "events": [claimed.id], "attempts": [1]}
    before = contents(db)
    for wrong in (
        {"workers": []},
        {"workers": ["a"], "ms": [1, 2]},
        {"workers": ["a"], "codes": []},
    ):
        with refused("QU001"):
            engine.call("report", **given, **wrong)
    with refused("QU001"):
        report(engine, (claimed.id, 1, None), others={"1": {"action": "explode"}})
    with refused("QU011"):
        engine.call("report", **{**given, "queue": "none", "workers": ["a:1"]})
    assert differences(before, contents(db)) == set()


@requirement("API-15")
@pytest.mark.parametrize("each", [True, False], ids=["held", "batch"])
def test_a_start_is_noted_once_for_an_attempt(engine: Engine, db: Database, each: bool) -> None:
    claimed, other = claim(engine, "a:1", 2, each=each)
    began = start(engine, claimed.id, worker="a:1")
    assert began == engine.now()
    db.advance(seconds=5)
    assert start(engine, claimed.id, attempt=1) == began
    assert engine.event(claimed.id).updated_at == began
    assert engine.event(claimed.id).status == "PROCESSING"
    retry = {"1": {**FAIL, "retry_in": 0}}
    report(engine, (claimed.id, 1, None), others=retry)
    with refused("QU020"):
        start(engine, claimed.id, worker="a:1")
    [again] = engine.poll(each=each, worker="b:1")
    assert start(engine, again.id, worker="b:1") == engine.now()
    assert engine.actions(again.id) == [
        *("EMITTED", "PICKED", "STARTED", "FAILED", "PICKED", "STARTED"),
    ]
    assert [e.worker_id for e in engine.trail(again.id)[1:]] == ["a:1"] * 3 + ["b:1"] * 2
    assert engine.actions(other.id) == ["EMITTED", "PICKED"]
    report(engine, (again.id, None, "b:1"))
    assert engine.event(again.id).status == "COMPLETED"


def test_nobody_starts_what_is_not_theirs(engine: Engine, db: Database) -> None:
    [claimed] = claim(engine, "a:1")
    before = contents(db)
    for wrong in ({"worker": "b:1"}, {"attempt": 2}, {}):
        with refused("QU020"):
            start(engine, claimed.id, **wrong)
    with refused("QU020"):
        start(engine, 10**9, worker="a:1")
    with refused("QU011"):
        start(engine, claimed.id, worker="a:1", queue="none")
    assert differences(before, contents(db)) == set()


@requirement("G4")
@pytest.mark.parametrize("each", [True, False], ids=["held", "batch"])
def test_a_heartbeat_makes_all_that_was_claimed_together_last(
    engine: Engine, db: Database, each: bool
) -> None:
    one, two = claim(engine, "a:1", 2, each=each)
    db.advance(seconds=50)
    until = engine.now() + timedelta(minutes=2)
    assert heartbeat(engine, one.id, worker="a:1", by="2 minutes") == ("held", until, None)
    db.advance(seconds=50)
    engine.tick()
    assert engine.event(two.id).lease_expires_at == until
    report(engine, (one.id, None, "a:1"))
    assert heartbeat(engine, one.id, worker="a:1").state == "lost"
    assert heartbeat(engine, two.id, attempt=1).state == "held"
    assert heartbeat(engine, two.id, attempt=2).state == "lost"
    assert heartbeat(engine, two.id, worker="b:1").state == "lost"
    assert heartbeat(engine, 10**9, worker="a:1").state == "lost"
