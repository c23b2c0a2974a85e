"""Administrators among ordering keys: whatever they take away or put back, the next of the key has its turn, one at a time."""

from typing import Any

import pytest

from tests.database import Database
from tests.engine.functions_helpers import Engine
from tests.engine.races_helpers import Session, blocked
from tests.requirements import requirement


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


def publish(engine: Engine, count: int = 3, **event: Any) -> list[int]:
    return engine.publish(*[{"key": "k", **event}] * count)


def call(engine: Engine, function: str, *arguments: Any) -> Any:
    named = ", ".join(["%s"] * len(arguments))
    return engine.connection.execute(
        f"select * from headrace.{function}('default', {named})", arguments
    ).fetchall()


def work_off(engine: Engine) -> list[int]:
    """What polls give, one after the other, each completed before the next."""
    done = []
    while claims := engine.poll(10):
        assert len(claims) == 1  # one of a key at a time
        engine.end("complete", claims[0])
        done.append(claims[0].id)
    return done


def take_away(engine: Engine, what: str, event: int) -> None:
    call(engine, what, event)


@pytest.mark.parametrize("what", ["cancel", "erase"])
class TestTakingAway:
    @requirement("G11")
    def test_the_one_in_work_lets_the_next_have_its_turn(self, engine: Engine, what: str) -> None:
        first, *others = publish(engine)
        engine.claim()
        assert engine.poll() == []
        take_away(engine, what, first)
        assert work_off(engine) == others

    @requirement("G11")
    def test_the_one_that_waits_for_its_retry_lets_the_next_have_its_turn(
        self, engine: Engine, what: str
    ) -> None:
        first, *others = publish(engine)
        engine.end("fail", engine.claim())
        assert engine.poll() == []
        take_away(engine, what, first)
        assert work_off(engine) == others

    @pytest.mark.parametrize("place", [0, 1, 2])
    @requirement("G11")
    def test_one_in_line_is_left_out(self, engine: Engine, what: str, place: int) -> None:
        ids = publish(engine)
        take_away(engine, what, ids.pop(place))
        assert work_off(engine) == ids

    @requirement("G11")
    def test_one_in_line_does_not_let_another_overtake_the_one_in_work(
        self, engine: Engine, what: str
    ) -> None:
        _, second, third = publish(engine)
        claim = engine.claim()
        take_away(engine, what, second)
        assert engine.poll() == []
        engine.end("complete", claim)
        assert work_off(engine) == [third]


class TestPuttingBack:
    @requirement("G11")
    def test_the_one_in_work_is_reset_to_the_head_of_its_key(self, engine: Engine) -> None:
        ids = publish(engine)
        late = engine.claim()
        call(engine, "reset", ids[0])
        assert work_off(engine) == ids
        [verdict] = engine.finish([late])
        assert verdict.verdict == "lost"

    @requirement("G11")
    def test_the_one_that_waits_for_its_retry_is_reset_to_the_head_of_its_key(
        self, engine: Engine, db: Database
    ) -> None:
        ids = publish(engine)
        engine.end("fail", engine.claim())
        call(engine, "reset", ids[0])
        assert work_off(engine) == ids
        assert db.sql("select 1 from headrace.active") == []

    @pytest.mark.parametrize("rate", [None, 1])
    @requirement("G11")
    def test_a_dead_letter_comes_back_one_at_a_time_with_its_key(
        self, engine: Engine, db: Database, rate: int | None
    ) -> None:
        first, *others = publish(engine, max_retries=0)
        engine.end("fail", engine.claim())
        working = engine.claim()
        assert working.id == others[0]
        engine.call("redrive", namespace="default", rate=rate)
        assert engine.poll() == []  # the key is busy
        engine.end("complete", working)
        assert work_off(engine) == [first, others[1]]
        assert engine.event(first).status == "COMPLETED"


@requirement("G11")
def test_a_purge_takes_those_in_line_and_leaves_the_one_in_work(engine: Engine) -> None:
    publish(engine)
    claim = engine.claim()
    [purged] = call(engine, "purge", "main", "ready")
    assert purged.done == 2
    engine.end("complete", claim)
    assert work_off(engine) == []
    assert publish(engine) == work_off(engine)


@requirement("G11")
def test_a_purge_of_what_is_delayed_frees_the_key(engine: Engine, db: Database) -> None:
    _, *others = publish(engine)
    engine.end("fail", engine.claim())
    [purged] = call(engine, "purge", "main", "delayed")
    assert purged.done == 1
    assert work_off(engine) == others
    assert db.sql("select 1 from headrace.active") == []


class TestRaces:
    @pytest.mark.parametrize("ending", ["commit", "rollback"])
    @requirement("G11")
    def test_a_claim_beside_a_cancellation_of_the_head_does_not_wait_and_nothing_is_forgotten(
        self, db: Database, engine: Engine, ending: str
    ) -> None:
        ids = publish(engine)
        admin, worker = Session(db), Session(db)
        admin.begin()
        admin.sql("select headrace.cancel('default', %s)", [ids[0]])
        worker.hurry().poll()
        getattr(admin, ending)()
        if ending == "commit":
            ids.pop(0)
        assert work_off(engine) == ids

    @requirement("G11")
    @pytest.mark.patient
    def test_a_cancellation_waits_for_a_claim_and_finds_what_it_took(
        self, db: Database, engine: Engine
    ) -> None:
        ids = publish(engine)
        admin, worker = Session(db), Session(db)
        worker.begin()
        worker.poll()
        cancel = blocked(db, admin, admin.sql, "select headrace.cancel('default', %s)", [ids[0]])
        worker.commit()
        assert cancel.result() == [(True,)]
        assert work_off(engine) == ids[1:]

    @pytest.mark.parametrize("what", ["cancel", "reset"])
    @requirement("G11")
    def test_a_publisher_who_does_not_see_it_leaves_nothing_behind(
        self, db: Database, engine: Engine, what: str
    ) -> None:
        [first] = publish(engine, 1)
        engine.claim()
        late, admin = Session(db), Session(db)
        late.begin()
        [second] = late.publish(key="k")
        admin.sql(f"select headrace.{what}('default', %s)", [first])
        late.commit()
        assert work_off(engine) == ([second] if what == "cancel" else [first, second])
