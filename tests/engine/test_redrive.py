"""redrive: dead letters become deliveries again, under their own ids, as fast as is asked for."""

from datetime import timedelta
from typing import Any

import pytest

from tests.database import Database
from tests.engine.functions_helpers import (
    Engine,
    Listener,
    contents,
    differences,
    refused,
    stop_the_clock,
)
from tests.requirements import requirement


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


def bury(engine: Engine, count: int = 1, **event: Any) -> list[int]:
    """Dead letters of events like this one."""
    ids = engine.publish(*[{"max_retries": 0, **event}] * count)
    claims = engine.poll(count)
    assert [claim.id for claim in claims] == ids
    engine.finish(claims, {str(n): {"action": "fail", "error": "no"} for n in range(1, count + 1)})
    return ids


def redrive(engine: Engine, **arguments: Any) -> Any:
    [answer] = engine.call("redrive", **{"namespace": engine.namespace, **arguments})
    return answer


def letters(db: Database) -> list[int]:
    return [id for (id,) in db.sql("select event from headrace.dead_letters order by event")]


@requirement("G7")
def test_a_dead_letter_is_ready_again_under_its_id_with_counters_at_zero(
    engine: Engine, db: Database
) -> None:
    [id] = bury(engine, payload={"a": 1})
    answer = redrive(engine, reason="fixed", actor="bob")
    assert (answer.done, answer.more) == (1, False)
    assert db.placement() == {id: ["ready"]}
    event = engine.event(id)
    assert (event.status, event.attempts, event.retry_count, event.crashes) == ("PENDING", 1, 0, 0)

    claim = engine.claim()
    assert (claim.id, claim.attempt, claim.payload) == (id, 2, {"a": 1})
    engine.end("complete", claim)
    ended = engine.event(id)
    assert (ended.status, ended.attempts, ended.retry_count) == ("COMPLETED", 2, 0)
    assert engine.actions(id) == [
        *("EMITTED", "PICKED", "FAILED", "DEAD_LETTERED", "REDRIVEN", "PICKED", "COMPLETED")
    ]
    entry = engine.trail(id)[4]
    assert (entry.worker_id, entry.error_message, entry.attempt) == ("bob", "fixed", 1)


@requirement("G7")
def test_each_drive_has_an_end_of_its_own(engine: Engine, db: Database) -> None:
    [id] = bury(engine)
    for drive in (2, 3):
        redrive(engine)
        claim = engine.claim()
        assert claim.attempt == drive
        engine.end("fail", claim)
        assert letters(db) == [id]
    assert engine.actions(id).count("DEAD_LETTERED") == 3
    assert engine.actions(id).count("REDRIVEN") == 2


@requirement("G8")
def test_a_finish_from_before_is_still_answered(engine: Engine) -> None:
    engine.publish({"max_retries": 0})
    claim = engine.claim()
    engine.end("fail", claim)
    redrive(engine)
    [verdict] = engine.finish([claim], {"1": {"action": "fail"}})
    assert (verdict.verdict, verdict.action) == ("repeated", "FAILED")
    [verdict] = engine.finish([claim])
    assert verdict.verdict == "conflict"


@requirement("G9")
def test_who_crashed_its_workers_comes_back_as_a_suspect(engine: Engine, db: Database) -> None:
    [poison] = engine.publish({"max_retries": 0})
    for _ in range(2):
        engine.claim()
        db.advance(seconds=61)
        engine.tick()
    assert letters(db) == [poison]
    engine.publish({})
    assert redrive(engine).done == 1
    claims = [engine.poll(10), engine.poll(10)]
    assert sorted(len(claimed) for claimed in claims) == [1, 1]
    assert {(claim.id == poison, claim.held) for [claim] in claims} == {
        (True, True),
        (False, False),
    }


class TestWhich:
    def test_all_of_a_queue(self, engine: Engine, db: Database) -> None:
        ids = bury(engine, 3, type="a") + bury(engine, 2, type="b")
        assert redrive(engine).done == 5
        assert db.placement() == {id: ["ready"] for id in ids}

    def test_by_ids_and_what_is_no_dead_letter_is_passed_by(
        self, engine: Engine, db: Database
    ) -> None:
        ids = bury(engine, 3)
        [alive] = engine.publish({"delay": 60})
        assert redrive(engine, ids=[ids[0], ids[2], ids[2], alive, 0, 10**15]).done == 2
        assert letters(db) == [ids[1]]
        assert redrive(engine, ids=[]).done == 0
        assert db.placement()[alive] == ["delayed"]

    def test_by_types_with_asterisks(self, engine: Engine, db: Database) -> None:
        paid, sent = bury(engine, type="order.paid"), bury(engine, type="order.sent")
        other = bury(engine, type="user.created")
        assert redrive(engine, types=["order.p*"]).done == 1
        assert letters(db) == sent + other
        assert redrive(engine, types=["user.created", "order.*"], ids=sent + paid).done == 1
        assert letters(db) == other

    def test_by_the_kind_of_error(self, engine: Engine, db: Database) -> None:
        for error in ("cannot reach 10.0.0.1", "cannot reach 10.0.0.2", "no such user: 7"):
            [last] = engine.publish({"max_retries": 0})
            engine.end("fail", engine.claim(), error=error)
        groups = engine.call("dead_letter_groups", namespace="default")
        by_letters = {group.letters: group.fingerprint for group in groups}
        assert redrive(engine, fingerprint=by_letters[2]).done == 2
        assert redrive(engine, fingerprint="no such").done == 0
        assert letters(db) == [last]

    def test_the_longest_dead_first(self, engine: Engine, db: Database) -> None:
        first = bury(engine)
        db.advance(seconds=1)
        second = bury(engine)
        assert redrive(engine, most=1).done == 1
        assert letters(db) == second
        assert [claim.id for claim in engine.poll(5)] == first

    @requirement("G16")
    def test_no_other_queues_or_namespaces(self, engine: Engine, db: Database) -> None:
        engine.call("create_namespace", namespace="other")
        ids = bury(engine)
        assert redrive(Engine(db, "other"), ids=ids).done == 0
        assert letters(db) == ids


class TestSteps:
    def test_a_call_does_at_most_so_many_and_says_that_there_is_more(
        self, engine: Engine, db: Database
    ) -> None:
        bury(engine, 5)
        answer, done = redrive(engine, most=2), [2]
        while answer.more:
            answer = redrive(engine, most=2, started_at=answer.started_at, done=answer.done)
            done.append(answer.done)
        assert done == [2, 4, 5]
        assert letters(db) == []

    def test_what_dies_again_meanwhile_is_not_redriven_for_ever(
        self, engine: Engine, db: Database
    ) -> None:
        ids = bury(engine, 3)
        answer = redrive(engine, most=3)
        claims = engine.poll(3)
        engine.finish(claims, {str(n): {"action": "fail"} for n in (1, 2, 3)})
        assert letters(db) == ids
        again = redrive(engine, most=3, started_at=answer.started_at, done=answer.done)
        assert (again.done, again.more) == (3, False)
        assert letters(db) == ids
        assert redrive(engine).done == 3

    @pytest.mark.parametrize("rate", [0, -1, 1e-9, 1e9, float("nan"), float("inf")])
    def test_a_rate_that_is_none_is_refused(self, engine: Engine, rate: float) -> None:
        with refused("QU001", match="a rate is"):
            redrive(engine, rate=rate)

    def test_what_makes_no_sense_is_refused(self, engine: Engine) -> None:
        for arguments in (
            {"most": 0},
            {"most": 10_001},
            {"most": None},
            {"types": []},
            {"types": ["a", None]},
        ):
            with refused("QU001"):
                redrive(engine, **arguments)
        for arguments, sqlstate in (({"namespace": "no"}, "QU010"), ({"queue": "no"}, "QU011")):
            with refused(sqlstate):
                redrive(engine, **arguments)


class TestRate:
    def test_they_are_spread_over_time(self, engine: Engine, db: Database) -> None:
        stop_the_clock(db)
        ids = bury(engine, 5)
        start = engine.now()
        answer = redrive(engine, rate=2, most=3)
        db.advance(seconds=0.1)
        answer = redrive(engine, rate=2, most=3, started_at=answer.started_at, done=answer.done)
        assert (answer.done, answer.more) == (5, False)
        assert db.sql("select event, due_at from headrace.delayed order by due_at") == [
            (id, start + timedelta(seconds=n / 2)) for n, id in enumerate(ids) if n > 0
        ]
        assert db.placement()[ids[0]] == ["ready"]
        for n in range(5):
            assert [claim.id for claim in engine.poll(5)] == [ids[n]]
            db.advance(seconds=0.5)
            engine.tick()

    def test_whose_time_has_passed_is_ready(self, engine: Engine, db: Database) -> None:
        ids = bury(engine, 4)
        answer = redrive(engine, rate=1, most=2)
        db.advance(minutes=1)
        redrive(engine, rate=1, most=2, started_at=answer.started_at, done=answer.done)
        assert [db.placement()[id] for id in ids[2:]] == [["ready"], ["ready"]]


class TestBodies:
    """A dead letter has its event with it, though the month it was published in is gone."""

    def past(self, engine: Engine, db: Database) -> int:
        [id] = bury(engine, payload={"a": 1}, tags=["x"], title="T", type="t")
        db.advance(days=400)
        while engine.tick(upkeep=True).more:
            pass
        assert db.sql("select 1 from headrace.events where id = %s", [id]) == []
        return id

    @pytest.mark.parametrize("what", ["redrive", "reset"])
    def test_an_event_whose_month_was_retired_is_delivered_as_it_was(
        self, engine: Engine, db: Database, what: str
    ) -> None:
        id = self.past(engine, db)
        if what == "redrive":
            assert redrive(engine).done == 1
        else:
            engine.call("reset", namespace="default", event_id=id)
        claim = engine.claim()
        assert (claim.id, claim.payload, claim.tags, claim.type) == (id, {"a": 1}, ["x"], "t")
        assert claim.details == {"title": "T"}
        engine.end("complete", claim)
        assert engine.event(id).status == "COMPLETED"

    def test_what_was_carried_over_is_forgotten_in_the_end(
        self, engine: Engine, db: Database
    ) -> None:
        self.past(engine, db)
        redrive(engine)
        engine.end("complete", engine.claim())
        engine.tick(upkeep=True)
        assert db.sql("select 1 from headrace.events_carried") == []

    def test_one_of_this_month_is_not_copied(self, engine: Engine, db: Database) -> None:
        bury(engine)
        redrive(engine)
        assert db.sql("select 1 from headrace.events_carried") == []

    def test_one_of_a_past_month_is_safe_from_a_retention_that_does_not_see_it(
        self, engine: Engine, db: Database
    ) -> None:
        [id] = bury(engine, payload={"a": 1})
        db.advance(days=40)
        redrive(engine)
        db.sql("delete from headrace.events")  # as whoever looked for living ones before
        assert engine.claim().payload == {"a": 1}
        assert db.placement() == {}
        assert engine.event(id).status == "PROCESSING"

    def test_a_forget_that_began_before_leaves_what_was_carried_over_anew(
        self, engine: Engine, db: Database
    ) -> None:
        id = self.past(engine, db)
        db.sql(
            "insert into headrace.events_carried select event, created_at, route, namespace, 0, priority,"
            " max_retries, type, tags, payload, details, key from headrace.dead_letters"
        )
        other = db.connect(autocommit=False)
        other.execute("set transaction isolation level repeatable read")
        other.execute("select 1")  # its snapshot shows no living delivery
        redrive(engine)
        with refused("40001"):
            other.execute("select headrace._forget()")
        other.rollback()
        assert engine.claim().id == id

    def test_one_whose_event_was_lost_before_it_died_stays(
        self, engine: Engine, db: Database
    ) -> None:
        [id] = engine.publish({})
        db.sql("delete from headrace.events")
        engine.poll()
        assert letters(db) == [id]
        before = contents(db)
        assert redrive(engine).done == 0
        with refused("QU024", match="ended as FAILED"):
            engine.call("reset", namespace="default", event_id=id)
        assert differences(before, contents(db)) == set()


def test_a_sleeping_worker_is_woken(engine: Engine, db: Database) -> None:
    bury(engine)
    listener = Listener(db)
    listener.fall_asleep()
    redrive(engine)
    assert listener.heard() == [""]
