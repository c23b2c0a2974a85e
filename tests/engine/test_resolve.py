"""resolve: after a lost reply, whether the finish of an attempt happened."""

import pytest

from tests.database import Database
from tests.engine.functions_helpers import Engine, contents, differences, refused
from tests.requirements import requirement


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


def resolve(engine: Engine, event: int, attempt: int) -> str | None:
    [row] = engine.call(
        "resolve", namespace=engine.namespace, queue="main", event=event, attempt=attempt
    )
    return row[0]


@requirement("G10")
@pytest.mark.parametrize("each", [True, False])
def test_it_tells_how_an_attempt_ended(engine: Engine, db: Database, each: bool) -> None:
    engine.publish(*({"payload": n} for n in range(6)))
    claims = engine.poll(max_events=6, each=each)
    assert [resolve(engine, claim.id, 1) for claim in claims] == [None] * 6

    completed, failed, released, dead, finalized, abandoned = claims
    engine.end("complete", completed)
    engine.end("fail", failed)
    engine.end("release", released)
    engine.end("finalize", dead, success=False)
    engine.end("finalize", finalized, errors=["x"])
    db.advance(minutes=2)
    engine.tick()
    before = contents(db)
    assert {claim: resolve(engine, claim.id, 1) for claim in claims} == {
        completed: "COMPLETED",
        failed: "FAILED",
        released: "RELEASED",
        dead: "FAILED",
        finalized: "COMPLETED_WITH_ERRORS",
        abandoned: "ABANDONED",
    }
    assert differences(before, contents(db)) == set()


@requirement("G10")
def test_each_attempt_has_an_answer_of_its_own(engine: Engine) -> None:
    [id] = engine.publish({"backoff": {"kind": "fixed", "delay": 0}})
    told: list[str | None] = [None, None, None, None, None]
    for attempt, (action, logged) in enumerate(
        [("release", "RELEASED"), ("fail", "FAILED"), ("complete", "COMPLETED")], 1
    ):
        claim = engine.claim(each=True)
        assert [resolve(engine, id, attempt) for attempt in range(5)] == told
        engine.end(action, claim)
        told[attempt] = logged
        assert [resolve(engine, id, attempt) for attempt in range(5)] == told


@requirement("G10")
def test_a_finish_that_was_rolled_back_did_not_happen(engine: Engine) -> None:
    engine.publish({})
    claim = engine.claim(each=True)
    with engine.connection.transaction(force_rollback=True):
        engine.end("complete", claim)
        assert resolve(engine, claim.id, 1) == "COMPLETED"  # as this transaction sees it
    assert resolve(engine, claim.id, 1) is None


@requirement("G10")
def test_an_attempt_that_never_was_has_not_ended(engine: Engine) -> None:
    [id] = engine.publish({})
    for event, attempt in ((id, 1), (id, 0), (0, 1), (-1, 1), (2**63 - 1, 2**31 - 1)):
        assert resolve(engine, event, attempt) is None


@requirement("G16")
def test_another_namespaces_attempt_is_not_told(engine: Engine, db: Database) -> None:
    engine.call("create_namespace", namespace="other")
    engine.publish({})
    claim = engine.claim(each=True)
    engine.end("complete", claim)
    assert resolve(Engine(db, "other"), claim.id, 1) is None


def test_an_unknown_namespace_or_queue_is_refused(engine: Engine) -> None:
    for namespace, queue, sqlstate in (
        ("nowhere", "main", "QU010"),
        (None, "main", "QU010"),
        ("default", "other", "QU011"),
        ("default", None, "QU011"),
    ):
        with refused(sqlstate):
            engine.call("resolve", namespace=namespace, queue=queue, event=1, attempt=1)
