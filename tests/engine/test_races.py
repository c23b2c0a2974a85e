"""Whoever races to end a claim: one end is counted, the others are told, nothing is taken twice.

Each test opens a transaction in one session and lets another run into it; where it must wait, the test
waits for that lock, and where it must not, the session fails if it does.
"""

import pytest
from psycopg.errors import SerializationFailure

from tests.database import Database
from tests.engine.races_helpers import (
    ISOLATION_LEVELS,
    REPEATABLE_READ,
    SERIALIZABLE,
    Background,
    Session,
    blocked,
    everything_is_in_one_place,
)
from tests.requirements import requirement

batch_or_held = pytest.mark.parametrize("each", [False, True], ids=["batch", "held"])
any_isolation = pytest.mark.parametrize("isolation", ISOLATION_LEVELS)


@pytest.fixture
def worker(db: Database) -> Session:
    return Session(db)


@pytest.fixture
def other(db: Database) -> Session:
    return Session(db)


def claim(session: Session, count: int = 1, *, each: bool = False, **event: object) -> list:
    session.publish(count, **event)
    return session.poll(count, each=each)


class TestFinishAndReap:
    @batch_or_held
    @requirement("G6", "G7")
    def test_a_finish_that_comes_after_the_reaper_counts_late(
        self, db: Database, worker: Session, other: Session, each: bool
    ) -> None:
        claims = claim(worker, 3, each=each)
        db.advance(seconds=61)
        other.begin()
        assert other.reap() == 1
        finish = blocked(db, worker, worker.finish, claims)
        other.commit()
        assert finish.result() == ["counted"] * 3
        assert set(map(tuple, db.placement().values())) == {("outcome",)}
        assert worker.outcomes(claims[0].id) == ["ABANDONED", "COMPLETED"]
        times = "select at from headrace.outcomes where events[1] = %s order by id"
        abandoned, completed = worker.sql(times, [claims[0].id])
        assert abandoned <= completed  # though the finish began before

    @batch_or_held
    @requirement("G7")
    def test_a_finish_counts_when_the_reaper_before_it_rolls_back(
        self, db: Database, worker: Session, other: Session, each: bool
    ) -> None:
        claims = claim(worker, 3, each=each)
        db.advance(seconds=61)
        other.begin()
        assert other.reap() == 1
        finish = blocked(db, worker, worker.finish, claims)
        other.rollback()
        assert finish.result() == ["counted"] * 3
        assert set(map(tuple, db.placement().values())) == {("outcome",)}
        assert worker.outcomes(claims[0].id) == ["COMPLETED"]

    @batch_or_held
    @pytest.mark.parametrize("isolation", [REPEATABLE_READ, SERIALIZABLE])
    @requirement("G6")
    def test_a_finish_with_a_snapshot_of_before_the_reaper_changes_nothing(
        self, db: Database, worker: Session, other: Session, each: bool, isolation: str
    ) -> None:
        claims = claim(worker, 2, each=each)
        db.advance(seconds=61)
        worker.begin(isolation)
        assert other.reap() == 1
        with pytest.raises(SerializationFailure):
            worker.finish(claims)
        worker.rollback()
        assert set(map(tuple, db.placement().values())) == {("ready",)}
        assert worker.finish(claims) == ["counted"] * 2  # late, and nobody has them

    @batch_or_held
    @requirement("G5", "G7")
    def test_the_reaper_neither_waits_for_nor_robs_a_finish_in_flight(
        self, db: Database, worker: Session, other: Session, each: bool
    ) -> None:
        claims = claim(worker, 3, each=each)
        db.advance(seconds=61)
        worker.begin()
        assert worker.finish(claims) == ["counted"] * 3
        assert other.hurry().reap() == 0
        assert other.poll(3) == []
        worker.commit()
        other.reap()
        assert set(map(tuple, db.placement().values())) == {("outcome",)}
        assert other.sql("select 1 from headrace.leases") == []

    @batch_or_held
    @requirement("G4", "G10")
    def test_what_a_rolled_back_finish_leaves_the_next_reaper_takes(
        self, db: Database, worker: Session, other: Session, each: bool
    ) -> None:
        claims = claim(worker, 3, each=each)
        db.advance(seconds=61)
        worker.begin()
        worker.finish(claims)
        assert other.hurry().reap() == 0
        worker.rollback()
        assert other.reap() == 1
        assert set(map(tuple, db.placement().values())) == {("ready",)}

    @requirement("G4", "G5")
    def test_the_reaper_takes_the_siblings_of_a_held_delivery_that_is_being_finished(
        self, db: Database, worker: Session, other: Session
    ) -> None:
        finishing, *siblings = claim(worker, 5, each=True)
        db.advance(seconds=61)
        worker.begin()
        worker.finish([finishing])
        other.hurry().reap()
        places = db.placement()
        assert places.pop(finishing.id) == ["held"]  # as others see it until the commit
        assert places == {sibling.id: ["ready"] for sibling in siblings}
        worker.commit()
        other.reap()
        assert db.placement()[finishing.id] == ["outcome"]
        assert other.sql("select 1 from headrace.leases") == []

    @batch_or_held
    @requirement("G6")
    def test_a_late_finish_counts_as_long_as_nobody_took_the_delivery(
        self, db: Database, worker: Session, each: bool
    ) -> None:
        claims = claim(worker, 2, each=each)
        db.advance(hours=5)
        assert worker.finish(claims) == ["counted"] * 2
        worker.reap()
        assert set(map(tuple, db.placement().values())) == {("outcome",)}

    @batch_or_held
    @requirement("G5", "G6")
    def test_a_late_finish_never_ends_the_attempt_of_the_next_owner(
        self, db: Database, worker: Session, other: Session, each: bool
    ) -> None:
        [late] = claim(worker, each=each)
        db.advance(seconds=61)
        [current] = other.poll(each=each)
        assert (current.id, current.attempt) == (late.id, late.attempt + 1)
        for action in ("complete", "fail", "release"):
            assert worker.finish([late], action=action) == ["lost"]
        assert worker.extend(late.lease) == ["lost"]
        assert other.finish([current]) == ["counted"]
        assert worker.outcomes(late.id) == ["ABANDONED", "COMPLETED"]


class TestExtendAndReap:
    @batch_or_held
    @requirement("G5")
    def test_the_reaper_passes_by_a_lease_that_is_being_extended(
        self, db: Database, worker: Session, other: Session, each: bool
    ) -> None:
        [claimed] = claim(worker, each=each)
        db.advance(seconds=61)
        worker.begin()
        assert worker.extend(claimed.lease) == ["held"]
        assert other.hurry().reap() == 0
        worker.commit()
        assert other.reap() == 0
        assert worker.finish([claimed]) == ["counted"]

    @batch_or_held
    @requirement("G6")
    def test_a_heartbeat_beside_the_reaper_is_busy_and_then_lost(
        self, db: Database, worker: Session, other: Session, each: bool
    ) -> None:
        [claimed] = claim(worker, each=each)
        db.advance(seconds=61)
        other.begin()
        other.reap()
        assert worker.hurry().extend(claimed.lease) == ["busy"]
        other.commit()
        assert worker.extend(claimed.lease) == ["lost"]

    @batch_or_held
    def test_a_heartbeat_beside_a_reaper_that_rolls_back_is_busy_and_then_held(
        self, db: Database, worker: Session, other: Session, each: bool
    ) -> None:
        [claimed] = claim(worker, each=each)
        db.advance(seconds=61)
        other.begin()
        other.reap()
        assert worker.hurry().extend(claimed.lease) == ["busy"]
        other.rollback()
        assert worker.extend(claimed.lease) == ["held"]
        assert other.reap() == 0

    def test_one_busy_lease_does_not_keep_a_workers_others_from_being_extended(
        self, db: Database, worker: Session, other: Session
    ) -> None:
        leases = [claim(worker, 2)[0].lease for _ in range(3)]
        other.begin()
        other.sql("select 1 from headrace.leases where id = %s for update", [leases[1]])
        assert worker.hurry().extend(*leases) == ["held", "busy", "held"]


class TestFinishAndExtend:
    def test_a_heartbeat_beside_the_finish_of_a_batch_is_busy_and_never_waits(
        self, db: Database, worker: Session, other: Session
    ) -> None:
        claims = claim(worker, 3)
        worker.begin()
        worker.finish(claims[:1])
        assert other.hurry().extend(claims[0].lease) == ["busy"]
        worker.commit()
        assert other.extend(claims[0].lease) == ["held"]
        worker.finish(claims[1:])
        assert other.extend(claims[0].lease) == ["lost"]

    def test_a_finish_and_a_heartbeat_of_one_batch_both_count(
        self, db: Database, worker: Session, other: Session
    ) -> None:
        claims = claim(worker, 3)
        other.begin()
        assert other.extend(claims[0].lease, by="1 hour") == ["held"]
        finish = blocked(db, worker, worker.finish, claims[:2])
        other.commit()
        assert finish.result() == ["counted"] * 2
        db.advance(minutes=59)
        assert other.reap() == 0
        assert [*db.placement().values()] == [["outcome"], ["outcome"], ["lease"]]

    @any_isolation
    @requirement("G10")
    def test_the_finish_of_a_held_delivery_never_waits_for_a_heartbeat(
        self, db: Database, worker: Session, other: Session, isolation: str
    ) -> None:
        claims = claim(worker, 2, each=True)
        other.begin()
        other.extend(claims[0].lease)
        worker.hurry().begin(isolation)
        assert worker.finish(claims) == ["counted"] * 2
        worker.commit()
        other.commit()

    @any_isolation
    @requirement("G10")
    def test_a_heartbeat_is_held_while_the_finishes_of_its_deliveries_are_open(
        self, db: Database, worker: Session, other: Session, isolation: str
    ) -> None:
        claims = claim(worker, 3, each=True)
        worker.begin(isolation)
        worker.finish(claims[:1])
        assert other.hurry().extend(claims[0].lease) == ["held"]
        worker.finish(claims[1:])
        assert other.extend(claims[0].lease) == ["held"]
        worker.commit()


class TestFinishAndFinish:
    @batch_or_held
    @pytest.mark.parametrize(
        ("first", "second", "verdict"),
        [
            ("complete", "complete", "repeated"),
            ("fail", "fail", "repeated"),
            ("release", "release", "repeated"),
            ("complete", "fail", "conflict"),
            ("fail", "complete", "conflict"),
            ("complete", "release", "conflict"),
            ("release", "complete", "conflict"),
        ],
    )
    @requirement("G7", "G8")
    def test_one_end_of_an_attempt_counts_and_the_other_is_told(
        self,
        db: Database,
        worker: Session,
        other: Session,
        each: bool,
        first: str,
        second: str,
        verdict: str,
    ) -> None:
        claims = claim(worker, 2, each=each)
        worker.begin()
        assert worker.finish(claims, action=first) == ["counted"] * 2
        finish = blocked(db, other, other.finish, claims, action=second)
        worker.commit()
        assert finish.result() == [verdict] * 2
        ends = {"complete": "COMPLETED", "fail": "FAILED", "release": "RELEASED"}
        assert [other.outcomes(claimed.id) for claimed in claims] == [[ends[first]]] * 2
        assert everything_is_in_one_place(db)

    @batch_or_held
    @requirement("G7")
    def test_the_second_end_counts_when_the_first_rolls_back(
        self, db: Database, worker: Session, other: Session, each: bool
    ) -> None:
        claims = claim(worker, 2, each=each)
        worker.begin()
        worker.finish(claims, action="fail")
        finish = blocked(db, other, other.finish, claims)
        worker.rollback()
        assert finish.result() == ["counted"] * 2
        assert other.outcomes(claims[0].id) == ["COMPLETED"]
        assert everything_is_in_one_place(db)

    @requirement("G7", "G8")
    def test_a_whole_batch_that_two_complete_at_once_is_logged_once(
        self, db: Database, worker: Session, other: Session
    ) -> None:
        claims = claim(worker, 50)
        worker.begin()
        worker.finish(claims)
        finish = blocked(db, other, other.finish, claims)
        worker.commit()
        assert finish.result() == ["repeated"] * 50
        assert db.sql("select sum(cardinality(events)) from headrace.outcomes") == [(50,)]

    @pytest.mark.parametrize("ending", ["commit", "rollback"])
    @requirement("G7")
    def test_siblings_of_a_batch_finish_one_after_the_other_and_all_count(
        self, db: Database, worker: Session, other: Session, ending: str
    ) -> None:
        first, second, third = claim(worker, 3)
        worker.begin()
        assert worker.finish([first]) == ["counted"]
        finish = blocked(db, other, other.finish, [second])
        getattr(worker, ending)()
        assert finish.result() == ["counted"]
        left = [third] if ending == "commit" else [first, third]
        assert [id for id, places in db.placement().items() if places == ["lease"]] == [
            claimed.id for claimed in left
        ]
        assert worker.finish(left) == ["counted"] * len(left)
        assert set(map(tuple, db.placement().values())) == {("outcome",)}
        assert db.sql("select 1 from headrace.leases") == []

    def test_two_finishes_over_the_same_batches_never_deadlock(
        self, db: Database, worker: Session, other: Session
    ) -> None:
        worker.publish(6)
        one, two = worker.poll(3), worker.poll(3)
        db_lock = Session(db)
        db_lock.begin()
        db_lock.sql("select 1 from headrace.leases where id = %s for update", [one[0].lease])
        # Both begin and end with one lease, so that whoever locks by the order given locks crosswise.
        finish = blocked(db, worker, worker.finish, [two[0], one[0], two[1]])
        also = blocked(db, other, other.finish, [one[1], two[2], one[2]])
        db_lock.commit()
        assert finish.result() == also.result() == ["counted"] * 3
        assert set(map(tuple, db.placement().values())) == {("outcome",)}

    def test_a_finish_of_many_held_deliveries_never_deadlocks_with_another_in_another_order(
        self, db: Database, worker: Session, other: Session
    ) -> None:
        claims = claim(worker, 3, each=True)
        gate = Session(db)
        gate.begin()
        gate.sql("select 1 from headrace.held where event = %s for update", [claims[0].id])
        finish = blocked(db, worker, worker.finish, claims)
        also = blocked(db, other, other.finish, claims[::-1])
        gate.commit()
        assert sorted([finish.result(), also.result()]) == [["counted"] * 3, ["repeated"] * 3]


class TestTransactionalFinish:
    """A handler's own transaction, at every level, beside everything that goes on around it."""

    @any_isolation
    @requirement("G10", "PG-20")
    def test_it_counts_with_the_handlers_writes_whatever_happens_beside_it(
        self, db: Database, worker: Session, other: Session, isolation: str
    ) -> None:
        worker.sql("create temp table effects (event bigint)")
        mine, before, open_sibling, after = claim(worker, 4, each=True)
        sibling = Session(db)

        worker.hurry().begin(isolation)
        worker.sql("insert into effects values (%s)", [mine.id])
        assert other.hurry().extend(mine.lease) == ["held"]
        other.begin(isolation)
        assert other.finish([before]) == ["counted"]
        other.commit()
        sibling.hurry().begin(isolation)
        assert sibling.finish([open_sibling]) == ["counted"]
        other.tick()
        assert worker.finish([mine]) == ["counted"]
        assert other.extend(mine.lease) == ["held"]
        other.tick()
        assert other.finish([after]) == ["counted"]
        worker.commit()
        sibling.commit()

        assert set(map(tuple, db.placement().values())) == {("outcome",)}
        assert worker.sql("select event from effects") == [(mine.id,)]

    @any_isolation
    @requirement("G10")
    def test_a_reaper_of_its_siblings_does_not_doom_it(
        self, db: Database, worker: Session, other: Session, isolation: str
    ) -> None:
        mine, sibling = claim(worker, 2, each=True)
        db.advance(seconds=61)
        worker.hurry().begin(isolation)
        worker.finish([mine])
        other.tick()
        other.tick()
        worker.commit()
        other.tick()
        assert db.placement() == {mine.id: ["outcome"], sibling.id: ["ready"]}

    @any_isolation
    @requirement("G10")
    def test_rolled_back_it_leaves_the_delivery_held_under_the_same_attempt(
        self, db: Database, worker: Session, other: Session, isolation: str
    ) -> None:
        worker.sql("create temp table effects (event bigint)")
        [mine] = claim(worker, each=True)
        worker.begin(isolation)
        worker.sql("insert into effects values (%s)", [mine.id])
        worker.finish([mine])
        worker.rollback()
        assert worker.sql("select event from effects") == []
        assert db.placement() == {mine.id: ["held"]}
        assert other.resolve(mine) is None
        assert worker.finish([mine]) == ["counted"]

    @any_isolation
    @requirement("G10")
    def test_its_failures_and_releases_do_not_wait_either(
        self, db: Database, worker: Session, other: Session, isolation: str
    ) -> None:
        failing, released, beside = claim(worker, 3, each=True)
        worker.hurry().begin(isolation)
        other.hurry().extend(failing.lease)
        other.begin(isolation)
        other.finish([beside], action="fail", error="beside")
        assert worker.finish([failing], action="fail", error="no") == ["counted"]
        assert worker.finish([released], action="release") == ["counted"]
        worker.commit()
        other.commit()
        assert db.placement() == {
            failing.id: ["delayed"],
            released.id: ["ready"],
            beside.id: ["delayed"],
        }

    @pytest.mark.parametrize("isolation", [REPEATABLE_READ, SERIALIZABLE])
    @requirement("G10")
    def test_many_at_once_on_one_lease_beside_a_heartbeat_all_commit(
        self, db: Database, isolation: str
    ) -> None:
        claims = claim(Session(db), 80, each=True)
        heart = Session(db)

        def handle(session: Session, share: list) -> None:
            for claimed in share:
                session.begin(isolation)
                assert session.finish([claimed]) == ["counted"]
                session.commit()

        handlers = [Background(handle, Session(db), claims[n::4]) for n in range(4)]
        while not all(handler.over for handler in handlers):
            assert heart.extend(claims[0].lease) == ["held"]
            heart.tick()
        for handler in handlers:
            handler.result()
        assert set(map(tuple, db.placement().values())) == {("outcome",)}

    @any_isolation
    @requirement("G3")
    def test_what_it_publishes_exists_when_and_only_when_it_commits(
        self, db: Database, worker: Session, other: Session, isolation: str
    ) -> None:
        for ending in ("rollback", "commit"):
            [mine] = claim(worker, each=True, type=ending)
            worker.begin(isolation)
            worker.publish(type="follow-up")
            worker.finish([mine])
            assert other.poll(9) == []
            getattr(worker, ending)()
            assert [row.type for row in other.poll(9)] == ["follow-up"] * (ending == "commit")
            worker.finish([mine])


class TestResolve:
    @requirement("G10")
    def test_it_waits_for_the_backend_that_is_committing_and_says_completed(
        self, db: Database, worker: Session, other: Session
    ) -> None:
        [mine] = claim(worker, each=True)
        worker.begin()
        worker.finish([mine])
        answer = blocked(db, other, other.resolve, mine)
        worker.commit()
        assert answer.result() == "COMPLETED"

    @requirement("G10")
    def test_it_waits_for_the_backend_that_rolls_back_and_says_not_ended(
        self, db: Database, worker: Session, other: Session
    ) -> None:
        [mine] = claim(worker, each=True)
        worker.begin()
        worker.finish([mine])
        answer = blocked(db, other, other.resolve, mine)
        worker.rollback()
        assert answer.result() is None
        assert other.finish([mine]) == ["counted"]

    @pytest.mark.parametrize(
        ("action", "end"), [("fail", "FAILED"), ("release", "RELEASED"), ("complete", "COMPLETED")]
    )
    def test_it_names_the_action_that_ended_the_attempt(
        self, db: Database, worker: Session, other: Session, action: str, end: str
    ) -> None:
        [mine] = claim(worker, each=True)
        worker.begin()
        worker.finish([mine], action=action)
        answer = blocked(db, other, other.resolve, mine)
        worker.commit()
        assert answer.result() == end

    def test_an_attempt_that_was_taken_away_is_abandoned(
        self, db: Database, worker: Session, other: Session
    ) -> None:
        [mine] = claim(worker, each=True)
        db.advance(seconds=61)
        other.begin()
        other.reap()
        answer = blocked(db, worker, worker.resolve, mine)
        other.commit()
        assert answer.result() == "ABANDONED"

    def test_the_next_attempt_does_not_answer_for_the_last(
        self, db: Database, worker: Session
    ) -> None:
        [first] = claim(worker, each=True)
        worker.finish([first], action="release")
        [second] = worker.poll(each=True)
        assert worker.resolve(first) == "RELEASED"
        assert worker.resolve(second) is None
