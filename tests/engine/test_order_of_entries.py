"""The entries of one delivery are in the order of their times as well as of their ids."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from tests.database import Database
from tests.engine.functions_helpers import Engine
from tests.engine.races_helpers import Session, blocked

TRAIL = "select action, created_at from headrace.event_log where event_id = %s order by id"


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


def trail(db: Database, event_id: int) -> list[str]:
    """The actions, after a look whether their times are in order."""
    entries: list[tuple[str, datetime]] = db.sql(TRAIL, [event_id])  # type: ignore[assignment]
    times = [time for _, time in entries]
    assert times == sorted(times), entries
    return [action for action, _ in entries]


def released(engine: Engine, claim: Any) -> None:
    engine.end("release", claim)


def failed(engine: Engine, claim: Any) -> None:
    engine.end("fail", claim, retry_in="0")


def abandoned(engine: Engine, claim: Any) -> None:
    engine.finish([claim], {"1": {"action": "abandon"}}, leases=False)


def reset(engine: Engine, claim: Any) -> None:
    engine.call("reset", namespace="default", event_id=claim.id)


def redriven(engine: Engine, claim: Any) -> None:
    engine.end("finalize", claim, success=False)
    engine.db.step(seconds=1)  # redrive passes by what dies after it has begun
    engine.call("redrive", namespace="default")


BACK: list[Callable[[Engine, Any], None]] = [released, failed, abandoned, reset, redriven]


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize(
    ("back", "key"),
    # Of a key that was redriven, a token may be older than the delivery: there the clock alone decides.
    [(back, key) for back in BACK for key in (None, "k") if (back, key) != (redriven, "k")],
)
def test_a_clock_that_is_put_right_by_little_leaves_the_order_of_entries(
    engine: Engine, db: Database, back: Callable[[Engine, Any], None], each: bool, key: str | None
) -> None:
    """What a session reads from the clock and when it commits are not in one order either: this is the same, on purpose."""
    [id] = engine.publish({"type": "a", "max_retries": 9} | ({"key": key} if key else {}))
    for _ in range(2):
        db.step(milliseconds=-200)
        claim = engine.claim(each=each, worker="w")
        db.step(milliseconds=-200)
        engine.call("start", namespace="default", event=id, attempt=claim.attempt)
        back(engine, claim)
        if db.placement() == {id: ["delayed"]}:  # the second release in a row
            db.advance(seconds=2)
            engine.tick()
    db.step(milliseconds=-200)
    last = engine.claim(each=each, worker="w")
    db.step(milliseconds=-200)
    engine.end("complete", last)
    actions = trail(db, id)
    assert actions.count("PICKED") == 3
    assert actions[-1] == "COMPLETED"


@pytest.mark.parametrize("pending", [False, True])
def test_neither_does_a_cancellation_come_before_what_it_ends(
    engine: Engine, db: Database, pending: bool
) -> None:
    [id] = engine.publish({"type": "a"})
    claim = engine.claim()
    db.step(milliseconds=-200)
    if pending:
        engine.end("release", claim)
        db.step(milliseconds=-200)
    engine.call("cancel", namespace="default", event_id=id)
    assert trail(db, id)[-1] == "CANCELLED"


def test_a_whole_batch_is_completed_after_it_was_claimed(engine: Engine, db: Database) -> None:
    ids = engine.publish(*({"type": "a"} for _ in range(40)))
    db.step(milliseconds=-200)
    claims = engine.poll(40)
    db.step(milliseconds=-200)
    [(done,)] = engine.call(
        "complete_lease", namespace="default", queue="main", lease=claims[0].lease, size=40
    )
    assert done
    for id in ids:
        assert trail(db, id) == ["EMITTED", "PICKED", "COMPLETED"]


def test_a_claim_that_finds_a_lease_run_out_is_not_older_than_its_end(
    engine: Engine, db: Database
) -> None:
    """The clock runs: the claim has read it before it ends the lease."""
    ids = engine.publish(*({"type": "a"} for _ in range(20)))
    for _ in range(2):
        engine.poll(20)
        db.advance(seconds=61)
    for _ in ids:
        engine.claim()
    for id in ids:
        assert trail(db, id)[:4] == ["EMITTED", "PICKED", "ABANDONED", "PICKED"]


def test_a_finish_that_waited_for_a_start_is_not_older(db: Database) -> None:
    worker, other = Session(db), Session(db)
    [id] = worker.publish()
    [claim] = worker.poll(each=True)
    worker.begin()
    worker.sql("select 1 from headrace.held for update")
    finish = blocked(db, other, other.finish, [claim], lease=False)
    worker.sql("select headrace.start('default', %s, %s)", [id, claim.attempt])
    worker.commit()
    assert finish.result() == ["counted"]
    assert trail(db, id) == ["EMITTED", "PICKED", "STARTED", "COMPLETED"]


def test_times_of_a_clock_that_was_wrong_are_not_kept_up(engine: Engine, db: Database) -> None:
    [id] = engine.publish({"type": "a"})
    db.step(hours=-8)
    claim = engine.claim()
    engine.end("complete", claim)
    now = db.sql("select headrace._now()")[0][0]
    times = dict(db.sql(TRAIL, [id]))
    assert times["PICKED"] <= times["COMPLETED"] <= now < times["EMITTED"]
    assert claim.processing_started_at == times["PICKED"]
