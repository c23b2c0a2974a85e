"""cancel and reset: wherever a delivery stands, an administrator ends it or makes it ready, and the log says who and why."""

from typing import Any

import pytest

from tests.database import Database
from tests.engine.functions_helpers import Engine, Listener, contents, differences, refused
from tests.requirements import requirement

BY_BOB = {"reason": "worker_timeout", "actor": "bob"}


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


def change(engine: Engine, what: str, event: int, **arguments: Any) -> bool:
    """What cancel or reset answers: whether it changed anything."""
    [[changed]] = engine.call(what, namespace=engine.namespace, event_id=event, **arguments)
    return changed


# Each puts one event where its name says and returns its id, and its claim if it has one. -------


def ready(engine: Engine, db: Database) -> tuple[int, Any]:
    return engine.publish({"type": "a"})[0], None


def one_of_many_ready(engine: Engine, db: Database) -> tuple[int, Any]:
    return engine.publish(*[{"type": "a"}] * 5)[2], None


def packed(engine: Engine, db: Database) -> tuple[int, Any]:
    ids = engine.publish(*[{"type": "a"}] * 40)
    assert db.sql("select 1 from headrace.ready where pack is not null") != []
    return ids[20], None


def in_line(engine: Engine, db: Database) -> tuple[int, Any]:
    return engine.publish(*[{"type": "a", "key": "k"}] * 3)[1], None


def ready_again(engine: Engine, db: Database) -> tuple[int, Any]:
    [id] = engine.publish({"type": "a"})
    engine.end("release", engine.claim())
    return id, None


def ready_suspect(engine: Engine, db: Database) -> tuple[int, Any]:
    [id] = engine.publish({"type": "a"})
    engine.claim()
    db.advance(seconds=61)
    engine.tick()
    return id, None


def delayed(engine: Engine, db: Database) -> tuple[int, Any]:
    return engine.publish({"type": "a", "delay": 3600})[0], None


def delayed_retry(engine: Engine, db: Database) -> tuple[int, Any]:
    [id] = engine.publish({"type": "a"})
    engine.end("fail", engine.claim())
    return id, None


def held(engine: Engine, db: Database) -> tuple[int, Any]:
    [id] = engine.publish({"type": "a"})
    return id, engine.claim(each=True)


def one_of_many_held(engine: Engine, db: Database) -> tuple[int, Any]:
    ids = engine.publish(*[{"type": "a"}] * 5)
    return ids[2], engine.poll(5, each=True)[2]


def in_work_with_a_key(engine: Engine, db: Database) -> tuple[int, Any]:
    ids = engine.publish(*[{"type": "a", "key": "k"}] * 3)
    return ids[0], engine.claim()


def held_suspect(engine: Engine, db: Database) -> tuple[int, Any]:
    id, _ = ready_suspect(engine, db)
    return id, engine.claim()


def batch(engine: Engine, db: Database) -> tuple[int, Any]:
    ids = engine.publish(*[{"type": "a"}] * 5)
    return ids[2], engine.poll(5)[2]


def batch_of_one(engine: Engine, db: Database) -> tuple[int, Any]:
    [id] = engine.publish({"type": "a"})
    return id, engine.claim()


def half_done_batch(engine: Engine, db: Database) -> tuple[int, Any]:
    ids = engine.publish(*[{"type": "a"}] * 5)
    claims = engine.poll(5)
    engine.finish(claims[:2])
    return ids[2], claims[2]


def dead(engine: Engine, db: Database) -> tuple[int, Any]:
    [id] = engine.publish({"type": "a", "max_retries": 0})
    claim = engine.claim()
    engine.end("fail", claim)
    return id, claim


def dead_with_errors(engine: Engine, db: Database) -> tuple[int, Any]:
    [id] = engine.publish({"type": "a"})
    claim = engine.claim()
    engine.end("finalize", claim, errors=["no"])
    return id, claim


def completed(engine: Engine, db: Database) -> tuple[int, Any]:
    [id] = engine.publish({"type": "a"})
    claim = engine.claim()
    engine.end("complete", claim)
    return id, claim


def cancelled(engine: Engine, db: Database) -> tuple[int, Any]:
    [id] = engine.publish({"type": "a"})
    change(engine, "cancel", id)
    return id, None


def cancelled_in_work(engine: Engine, db: Database) -> tuple[int, Any]:
    id, claim = held(engine, db)
    change(engine, "cancel", id)
    return id, claim


READY = [ready, one_of_many_ready, packed, in_line, ready_again, ready_suspect]
DELAYED = [delayed, delayed_retry]
CLAIMED = [
    held,
    one_of_many_held,
    in_work_with_a_key,
    held_suspect,
    batch,
    batch_of_one,
    half_done_batch,
]
DEAD = [dead, dead_with_errors]
CANCELLED = [cancelled, cancelled_in_work]


def standing(*places: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("place", places, ids=lambda place: place.__name__)


class TestCancel:
    @standing(*READY, *DELAYED, *CLAIMED)
    @requirement("G7")
    def test_what_is_not_over_is_cancelled_for_good(
        self, engine: Engine, db: Database, place: Any
    ) -> None:
        id, _ = place(engine, db)
        before, others = engine.event(id), {**db.placement()}
        assert change(engine, "cancel", id, **BY_BOB)
        assert db.placement() == {**others, id: ["outcome"]}
        after = engine.event(id)
        assert (after.status, after.attempts) == ("CANCELLED", before.attempts)
        assert (after.retry_count, after.next_retry_at) == (before.retry_count, None)
        assert after.updated_at > before.updated_at

        db.advance(days=1)
        engine.tick()
        assert id not in {claim.id for claim in engine.poll(100)}

    @standing(*READY, *DELAYED, *CLAIMED)
    @requirement("G17")
    def test_the_log_says_who_and_why(self, engine: Engine, db: Database, place: Any) -> None:
        id, _ = place(engine, db)
        trail = engine.trail(id)
        change(engine, "cancel", id, **BY_BOB)
        *before, last = engine.trail(id)
        assert before == trail  # a PICKED keeps its number and its worker
        assert (last.action, last.worker_id, last.error_message) == (
            "CANCELLED",
            "bob",
            "worker_timeout",
        )
        assert last.attempt == engine.event(id).attempts

    @standing(*CLAIMED)
    @requirement("G6")
    def test_the_attempt_in_work_is_fenced_off(
        self, engine: Engine, db: Database, place: Any
    ) -> None:
        id, claim = place(engine, db)
        change(engine, "cancel", id)
        before = contents(db)
        for action in ("complete", "release", "fail"):
            for leases in (True, False):
                [verdict] = engine.finish([claim], {"1": {"action": action}}, leases=leases)
                assert (verdict.verdict, verdict.action) == ("lost", "CANCELLED")
        with refused("QU020"):
            engine.end("complete", claim)
        assert differences(before, contents(db)) == set()

    @standing(held, held_suspect, batch_of_one)
    @requirement("G6")
    def test_the_heartbeat_of_a_claim_that_is_left_with_nothing_is_told(
        self, engine: Engine, db: Database, place: Any
    ) -> None:
        id, claim = place(engine, db)
        change(engine, "cancel", id)
        [lease] = engine.call("extend", namespace="default", queue="main", leases=[claim.lease])
        assert lease.state == "lost"

    @standing(one_of_many_held, batch, half_done_batch)
    def test_the_others_of_its_claim_go_on(self, engine: Engine, db: Database, place: Any) -> None:
        id, claim = place(engine, db)
        others = [
            other for other, where in db.placement().items() if where in (["held"], ["lease"])
        ]
        change(engine, "cancel", id)
        [lease] = engine.call("extend", namespace="default", queue="main", leases=[claim.lease])
        assert lease.state == "held"
        for other in set(others) - {id}:
            [[_]] = engine.call("complete", namespace="default", event=other, attempt=1)
        assert set(map(tuple, db.placement().values())) == {("outcome",)}

    @standing(*CANCELLED)
    @requirement("G8")
    def test_repeating_it_changes_nothing(self, engine: Engine, db: Database, place: Any) -> None:
        id, _ = place(engine, db)
        before = contents(db)
        assert not change(engine, "cancel", id, reason="again")
        assert differences(before, contents(db)) == set()

    @standing(completed, *DEAD)
    @requirement("G7")
    def test_what_has_ended_otherwise_stays(self, engine: Engine, db: Database, place: Any) -> None:
        id, _ = place(engine, db)
        ended, before = engine.event(id), contents(db)
        with refused("QU024", match=f"event {id} has already ended as {ended.status} at "):
            change(engine, "cancel", id)
        assert differences(before, contents(db)) == set()

    def test_it_counts_the_attempt_it_ended_and_no_other(
        self, engine: Engine, db: Database
    ) -> None:
        waiting, _ = ready(engine, db)
        change(engine, "cancel", waiting)
        assert engine.stats().attempts == 0
        working, _ = held(engine, db)
        change(engine, "cancel", working)
        assert engine.stats().attempts == 1


class TestReset:
    @standing(*DELAYED, *CLAIMED)
    @requirement("API-21")
    def test_what_is_delayed_or_in_work_is_ready_now(
        self, engine: Engine, db: Database, place: Any
    ) -> None:
        id, _ = place(engine, db)
        before = engine.event(id)
        assert change(engine, "reset", id, **BY_BOB)
        assert db.placement()[id] in (["ready"], ["keyed"])
        after = engine.event(id)
        assert (after.status, after.next_retry_at, after.worker_id) == (
            "PENDING",
            None,
            before.worker_id,
        )
        counters = ("attempts", "retry_count", "crashes")
        assert [getattr(after, name) for name in counters] == [
            getattr(before, name) for name in counters
        ]
        again = next(claim for claim in engine.poll(10) if claim.id == id)
        assert again.attempt == before.attempts + 1
        engine.end("complete", again)
        assert engine.event(id).status == "COMPLETED"

    @standing(*DELAYED, *CLAIMED)
    @requirement("API-21", "G17")
    def test_the_log_says_who_and_why(self, engine: Engine, db: Database, place: Any) -> None:
        id, _ = place(engine, db)
        trail = engine.trail(id)
        change(engine, "reset", id, **BY_BOB)
        *before, last = engine.trail(id)
        assert before == trail
        assert (last.action, last.worker_id, last.error_message) == (
            "RESET",
            "bob",
            "worker_timeout",
        )

    @standing(*CLAIMED)
    @requirement("G5", "G6")
    def test_the_old_attempt_is_fenced_off(self, engine: Engine, db: Database, place: Any) -> None:
        id, late = place(engine, db)
        change(engine, "reset", id)
        current = next(claim for claim in engine.poll(10, each=True) if claim.id == id)
        before = contents(db)
        for action in ("complete", "release", "fail"):
            for leases in (True, False):
                [verdict] = engine.finish([late], {"1": {"action": action}}, leases=leases)
                assert (verdict.verdict, verdict.action) == ("lost", "RESET")
        assert differences(before, contents(db)) == set()
        engine.end("complete", current)

    def test_a_suspect_stays_one(self, engine: Engine, db: Database) -> None:
        id, _ = held_suspect(engine, db)
        change(engine, "reset", id)
        assert db.sql("select suspect from headrace.ready") == [(True,)]

    @standing(*(one for one in READY if one is not ready_suspect))
    @requirement("API-21")
    def test_what_is_ready_stays_as_it_is(self, engine: Engine, db: Database, place: Any) -> None:
        id, _ = place(engine, db)
        before = contents(db)
        assert not change(engine, "reset", id)
        assert differences(before, contents(db)) == set()

    @standing(*DEAD)
    @requirement("API-21", "G7")
    def test_a_dead_letter_is_redriven(self, engine: Engine, db: Database, place: Any) -> None:
        id, _ = place(engine, db)
        assert change(engine, "reset", id, **BY_BOB)
        assert db.placement()[id] == ["ready"]
        after = engine.event(id)
        assert (after.status, after.attempts, after.retry_count) == ("PENDING", 1, 0)
        last = engine.trail(id)[-1]
        assert (last.action, last.worker_id, last.error_message) == (
            "REDRIVEN",
            "bob",
            "worker_timeout",
        )

    @standing(completed, *CANCELLED)
    @requirement("API-21", "G7")
    def test_what_is_completed_or_cancelled_stays(
        self, engine: Engine, db: Database, place: Any
    ) -> None:
        id, _ = place(engine, db)
        ended, before = engine.event(id), contents(db)
        with refused("QU024", match=f"event {id} has already ended as {ended.status} at "):
            change(engine, "reset", id)
        assert differences(before, contents(db)) == set()

    def test_a_sleeping_worker_is_woken(self, engine: Engine, db: Database) -> None:
        id, _ = delayed(engine, db)
        listener = Listener(db)
        listener.fall_asleep()
        change(engine, "reset", id)
        assert listener.heard() == [""]


@pytest.mark.parametrize("what", ["cancel", "reset"])
class TestBoth:
    def test_who_is_not_named_is_the_sessions_user(
        self, engine: Engine, db: Database, what: str
    ) -> None:
        id, _ = delayed(engine, db)
        change(engine, what, id)
        entry = engine.trail(id)[-1]
        [(user,)] = db.sql("select session_user::text")
        assert (entry.worker_id, entry.error_message) == (user, None)

    def test_what_is_not_there_is_refused(self, engine: Engine, what: str) -> None:
        for arguments, sqlstate in (
            ({"namespace": "nowhere"}, "QU010"),
            ({"queue": "other"}, "QU011"),
            ({}, "QU012"),
            ({"event_id": None}, "QU012"),
        ):
            with refused(sqlstate):
                engine.call(what, **{"namespace": "default", "event_id": 1, **arguments})

    @requirement("G16")
    def test_another_namespaces_event_is_not_found(
        self, engine: Engine, db: Database, what: str
    ) -> None:
        engine.call("create_namespace", namespace="elsewhere")
        id, _ = delayed(engine, db)
        with refused("QU012"):
            change(Engine(db, "elsewhere"), what, id)

    def test_a_name_that_is_too_long_is_refused_and_nothing_is_changed(
        self, engine: Engine, db: Database, what: str
    ) -> None:
        id, _ = delayed(engine, db)
        before = contents(db)
        with refused("QU001"):
            change(engine, what, id, actor="x" * 201)
        assert differences(before, contents(db)) == set()

    def test_a_long_reason_is_cut(self, engine: Engine, db: Database, what: str) -> None:
        id, _ = delayed(engine, db)
        change(engine, what, id, reason="x" * 70_000)
        assert engine.trail(id)[-1].error_message == "x" * 65_536
