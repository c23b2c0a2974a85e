"""complete_lease: a whole batch is completed without naming its members."""

from typing import Any

import pytest

from tests.database import Database
from tests.engine.functions_helpers import Engine, contents, differences
from tests.requirements import requirement


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


def claims(engine: Engine, count: int, **arguments: Any) -> list[Any]:
    engine.publish(*({"payload": n} for n in range(count)))
    claimed = engine.poll(max_events=count, **arguments)
    assert len(claimed) == count
    return claimed


def complete(engine: Engine, claimed: list[Any], **arguments: Any) -> bool:
    [answer] = engine.call(
        "complete_lease",
        **{"namespace": "default", "queue": "main", "lease": claimed[0].lease}
        | {"size": len(claimed)}
        | arguments,
    )
    return bool(answer[0])


@requirement("G9")
def test_all_of_a_lease_is_completed_and_logged(engine: Engine, db: Database) -> None:
    db.sql("select setval('headrace.ids', headrace._id_at(1024 * 3 - 6))")
    claimed = claims(engine, 10, worker="host:7")
    assert complete(engine, claimed, ms=5, code=204)
    assert db.placement() == {claim.id: ["outcome"] for claim in claimed}
    for n, claim in enumerate(claimed):
        [_, picked, completed] = engine.trail(claim.id)
        assert (picked.id, picked.worker_id) == (claim.lease * 1024 + n, "host:7")
        assert (completed.action, completed.attempt) == ("COMPLETED", 1)
        assert (completed.execution_time_ms, completed.status_code) == (5, 204)
    stats = engine.stats()
    assert (stats.completed, stats.attempts, stats.average_ms) == (10, 10, 5)


def test_later_attempts_are_logged_as_what_they_are(engine: Engine) -> None:
    for claim in claims(engine, 3):
        engine.end("release", claim, lease=claim.lease)
    again = engine.poll(max_events=3)
    assert complete(engine, again)
    assert [engine.trail(claim.id)[-1].attempt for claim in again] == [2, 2, 2]


def test_time_and_code_may_be_unknown(engine: Engine) -> None:
    claimed = claims(engine, 3)
    assert complete(engine, claimed)
    end = engine.trail(claimed[0].id)[-1]
    assert (end.execution_time_ms, end.status_code) == (None, None)
    assert engine.stats().average_ms is None


@pytest.mark.parametrize("why", ["ended", "one has ended", "another size", "another queue", "held"])
def test_what_is_not_whole_is_left_alone(engine: Engine, db: Database, why: str) -> None:
    claimed = claims(engine, 4, each=why == "held")
    arguments: dict[str, Any] = {}
    if why == "ended":
        assert complete(engine, claimed)
    elif why == "one has ended":
        engine.end("complete", claimed[1], lease=claimed[1].lease)
    elif why == "another size":
        arguments["size"] = 3
    elif why == "another queue":
        engine.call("create_queue", namespace="default", queue="other")
        arguments["queue"] = "other"
    before = contents(db)
    assert not complete(engine, claimed, **arguments)
    assert differences(before, contents(db)) == set()
