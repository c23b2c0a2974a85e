"""Administrators racing with workers: one of them decides, the other is told, nobody hangs and nothing is lost or doubled.

As in test_races: one session opens a transaction and another runs into it.
"""

from typing import Any

import psycopg
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
either = pytest.mark.parametrize("what", ["cancel", "reset"])
ENDS = {"cancel": ["outcome"], "reset": ["ready"]}
LOGGED = {"cancel": "CANCELLED", "reset": "RESET"}


class Administrator(Session):
    def change(self, what: str, event: int) -> bool | str:
        """Whether cancel or reset changed anything, or the SQLSTATE of its refusal."""
        try:
            return self.sql(f"select headrace.{what}('default', %s)", [event])[0][0]
        except psycopg.Error as error:
            return error.sqlstate or str(error)


@pytest.fixture
def worker(db: Database) -> Session:
    return Session(db)


@pytest.fixture
def admin(db: Database) -> Administrator:
    return Administrator(db)


def claim(session: Session, count: int = 1, *, each: bool = False, **event: object) -> list[Any]:
    session.publish(count, **event)
    return session.poll(count, each=each)


class TestFinishAndChange:
    @either
    @batch_or_held
    @requirement("G6", "G7")
    def test_a_finish_that_comes_second_is_lost(
        self, db: Database, worker: Session, admin: Administrator, what: str, each: bool
    ) -> None:
        claims = claim(worker, 3, each=each)
        admin.begin()
        assert admin.change(what, claims[1].id) is True
        finish = blocked(db, worker, worker.finish, claims)
        admin.commit()
        assert finish.result() == ["counted", "lost", "counted"]
        assert db.placement() == {
            claims[0].id: ["outcome"],
            claims[1].id: ENDS[what],
            claims[2].id: ["outcome"],
        }

    @either
    @batch_or_held
    @requirement("G7")
    def test_a_finish_counts_when_the_change_before_it_rolls_back(
        self, db: Database, worker: Session, admin: Administrator, what: str, each: bool
    ) -> None:
        claims = claim(worker, 3, each=each)
        admin.begin()
        admin.change(what, claims[1].id)
        finish = blocked(db, worker, worker.finish, claims)
        admin.rollback()
        assert finish.result() == ["counted"] * 3
        assert worker.outcomes(claims[1].id) == ["COMPLETED"]

    @either
    @batch_or_held
    @pytest.mark.parametrize("isolation", [REPEATABLE_READ, SERIALIZABLE])
    @requirement("G6", "G10")
    def test_a_finish_with_a_snapshot_of_before_the_change_changes_nothing(
        self,
        db: Database,
        worker: Session,
        admin: Administrator,
        what: str,
        each: bool,
        isolation: str,
    ) -> None:
        [claimed] = claim(worker, each=each)
        worker.begin(isolation)
        admin.change(what, claimed.id)
        with pytest.raises(SerializationFailure):
            worker.finish([claimed])
        worker.rollback()
        assert db.placement() == {claimed.id: ENDS[what]}
        assert worker.finish([claimed]) == ["lost"]

    @either
    @batch_or_held
    @any_isolation
    @requirement("G7")
    def test_a_change_does_not_hang_while_the_handlers_transaction_is_open(
        self,
        db: Database,
        worker: Session,
        admin: Administrator,
        what: str,
        each: bool,
        isolation: str,
    ) -> None:
        [claimed] = claim(worker, each=each)
        worker.begin(isolation)
        worker.finish([claimed])
        assert admin.change(what, claimed.id) == "QU023"
        worker.commit()
        assert admin.change(what, claimed.id) == "QU024"
        assert worker.outcomes(claimed.id) == ["COMPLETED"]

    @either
    @batch_or_held
    @pytest.mark.parametrize("ending", ["commit", "rollback"])
    @requirement("G7")
    @pytest.mark.patient
    def test_a_change_waits_for_a_finish_that_is_about_to_commit(
        self,
        db: Database,
        worker: Session,
        admin: Administrator,
        what: str,
        each: bool,
        ending: str,
    ) -> None:
        [claimed] = claim(worker, each=each)
        worker.begin()
        worker.finish([claimed])
        change = blocked(db, admin, admin.change, what, claimed.id)
        getattr(worker, ending)()
        assert change.result() == ("QU024" if ending == "commit" else True)
        assert everything_is_in_one_place(db)

    @either
    @batch_or_held
    @pytest.mark.patient
    def test_a_change_finds_what_a_release_has_just_put_elsewhere(
        self, db: Database, worker: Session, admin: Administrator, what: str, each: bool
    ) -> None:
        [claimed] = claim(worker, each=each)
        worker.begin()
        worker.finish([claimed], action="release")
        change = blocked(db, admin, admin.change, what, claimed.id)
        worker.commit()
        assert change.result() is (what == "cancel")  # it is ready: nothing to reset
        assert db.placement() == {claimed.id: ENDS[what]}

    @either
    @batch_or_held
    @pytest.mark.patient
    def test_a_change_finds_what_a_failure_has_just_delayed(
        self, db: Database, worker: Session, admin: Administrator, what: str, each: bool
    ) -> None:
        [claimed] = claim(worker, each=each)
        worker.begin()
        worker.finish([claimed], action="fail")
        change = blocked(db, admin, admin.change, what, claimed.id)
        worker.commit()
        assert change.result() is True
        assert worker.outcomes(claimed.id) == ["FAILED", LOGGED[what]]
        assert db.placement() == {claimed.id: ENDS[what]}

    @batch_or_held
    @pytest.mark.patient
    def test_a_reset_redrives_what_a_failure_has_just_buried(
        self, db: Database, worker: Session, admin: Administrator, each: bool
    ) -> None:
        [claimed] = claim(worker, each=each, max_retries=0)
        worker.begin()
        worker.finish([claimed], action="fail")
        reset = blocked(db, admin, admin.change, "reset", claimed.id)
        worker.commit()
        assert reset.result() is True
        assert db.placement() == {claimed.id: ["ready"]}

    @either
    @batch_or_held
    def test_a_resolve_waits_for_the_change_and_tells_it(
        self, db: Database, worker: Session, admin: Administrator, what: str, each: bool
    ) -> None:
        [claimed] = claim(worker, each=each)
        admin.begin()
        admin.change(what, claimed.id)
        if each:
            resolve = blocked(db, worker, worker.resolve, claimed)
        admin.commit()
        assert (resolve.result() if each else worker.resolve(claimed)) == LOGGED[what]


class TestPollAndChange:
    @either
    @batch_or_held
    @requirement("G5")
    def test_a_poll_passes_by_what_is_being_changed(
        self, db: Database, worker: Session, admin: Administrator, what: str, each: bool
    ) -> None:
        [id] = worker.publish(delay=60) if what == "reset" else worker.publish()
        admin.begin()
        assert admin.change(what, id) is True
        assert worker.hurry().poll(each=each) == []
        admin.commit()
        assert [claimed.id for claimed in worker.poll(each=each)] == ([id] * (what == "reset"))

    @either
    @batch_or_held
    @requirement("G5", "G6")
    @pytest.mark.patient
    def test_a_change_finds_what_a_poll_has_just_claimed(
        self, db: Database, worker: Session, admin: Administrator, what: str, each: bool
    ) -> None:
        [id] = worker.publish()
        worker.begin()
        [claimed] = worker.poll(each=each)
        if what == "reset":  # it was ready when it was looked at
            assert admin.hurry().change(what, id) is False
            worker.commit()
            assert admin.change(what, id) is True
        else:
            change = blocked(db, admin, admin.change, what, id)
            worker.commit()
            assert change.result() is True
        assert db.placement() == {id: ENDS[what]}
        assert worker.finish([claimed]) == ["lost"]

    @pytest.mark.patient
    def test_a_cancellation_counts_when_the_claim_before_it_rolls_back(
        self, db: Database, worker: Session, admin: Administrator
    ) -> None:
        [id] = worker.publish()
        worker.begin()
        worker.poll()
        change = blocked(db, admin, admin.change, "cancel", id)
        worker.rollback()
        assert change.result() is True
        assert db.placement() == {id: ["outcome"]}


class TestTickAndChange:
    @either
    @batch_or_held
    @requirement("G7")
    def test_the_reaper_passes_by_what_is_being_changed(
        self, db: Database, worker: Session, admin: Administrator, what: str, each: bool
    ) -> None:
        [claimed] = claim(worker, each=each)
        db.advance(seconds=61)
        admin.begin()
        assert admin.change(what, claimed.id) is True
        assert worker.hurry().reap() == 0
        admin.commit()
        worker.reap()
        assert worker.outcomes(claimed.id) == [LOGGED[what]]
        assert db.placement() == {claimed.id: ENDS[what]}

    @either
    @batch_or_held
    @pytest.mark.patient
    def test_a_change_finds_what_the_reaper_has_just_put_back(
        self, db: Database, worker: Session, admin: Administrator, what: str, each: bool
    ) -> None:
        [claimed] = claim(worker, each=each)
        db.advance(seconds=61)
        worker.begin()
        worker.reap()
        change = blocked(db, admin, admin.change, what, claimed.id)
        worker.commit()
        assert (
            change.result() is True
        )  # what was abandoned is reset, too: its attempt is fenced off
        assert db.placement() == {claimed.id: ENDS[what]}

    @either
    @pytest.mark.patient
    def test_a_change_finds_what_has_just_become_due(
        self, db: Database, worker: Session, admin: Administrator, what: str
    ) -> None:
        [id] = worker.publish(delay=60)
        db.advance(seconds=61)
        worker.begin()
        assert worker.tick().due == 1
        change = blocked(db, admin, admin.change, what, id)
        worker.commit()
        assert change.result() is (what == "cancel")
        assert db.placement() == {id: ENDS[what]}

    @either
    def test_a_tick_passes_by_a_delayed_delivery_that_is_being_changed(
        self, db: Database, worker: Session, admin: Administrator, what: str
    ) -> None:
        [id] = worker.publish(delay=60)
        db.advance(seconds=61)
        admin.begin()
        admin.change(what, id)
        assert worker.hurry().tick().due == 0
        admin.commit()
        assert worker.tick().due == 0
        assert db.placement() == {id: ENDS[what]}


class TestExtendAndChange:
    @either
    @batch_or_held
    def test_a_heartbeat_never_waits_for_a_change(
        self, db: Database, worker: Session, admin: Administrator, what: str, each: bool
    ) -> None:
        [claimed] = claim(worker, each=each)
        admin.begin()
        admin.change(what, claimed.id)
        assert worker.hurry().extend(claimed.lease) == ["busy"]
        admin.commit()
        assert worker.extend(claimed.lease) == ["lost"]

    @either
    @requirement("G6")
    def test_a_change_of_a_held_delivery_never_waits_for_a_heartbeat(
        self, db: Database, worker: Session, admin: Administrator, what: str
    ) -> None:
        [claimed] = claim(worker, each=True)
        worker.begin()
        worker.extend(claimed.lease)
        assert admin.hurry().change(what, claimed.id) is True
        worker.commit()
        assert worker.finish([claimed]) == ["lost"]
        db.advance(seconds=200)
        worker.reap()
        assert db.sql("select 1 from headrace.leases") == []
        assert db.placement() == {claimed.id: ENDS[what]}


class TestChangeAndChange:
    @pytest.mark.parametrize(
        ("first", "second", "answer"),
        [
            ("cancel", "cancel", False),
            ("cancel", "reset", "QU024"),
            ("reset", "reset", False),
            ("reset", "cancel", True),
        ],
    )
    @pytest.mark.parametrize("place", ["delayed", "batch", "held"])
    @requirement("G7", "G8")
    @pytest.mark.patient
    def test_two_administrators_do_one_after_the_other(
        self,
        db: Database,
        worker: Session,
        admin: Administrator,
        first: str,
        second: str,
        answer: bool | str,
        place: str,
    ) -> None:
        if place == "delayed":
            [id] = worker.publish(delay=60)
        else:
            id = claim(worker, each=place == "held")[0].id
        other = Administrator(db)
        admin.begin()
        assert admin.change(first, id) is True
        change = blocked(db, other, other.change, second, id)
        admin.commit()
        assert change.result() == answer
        assert everything_is_in_one_place(db)

    @pytest.mark.parametrize("isolation", [REPEATABLE_READ, SERIALIZABLE])
    @either
    def test_above_read_committed_it_works_or_is_told_to_try_again(
        self, db: Database, worker: Session, admin: Administrator, what: str, isolation: str
    ) -> None:
        [claimed] = claim(worker, each=True)
        admin.begin(isolation)
        worker.finish([claimed], action="fail")
        assert admin.change(what, claimed.id) == "40001"
        admin.rollback()
        admin.begin(isolation)
        assert admin.change(what, claimed.id) is True
        admin.commit()
        assert db.placement() == {claimed.id: ENDS[what]}

    @either
    def test_what_is_never_where_it_was_just_seen_is_said_to_be_on_the_move(
        self, db: Database, worker: Session, admin: Administrator, what: str
    ) -> None:
        [id] = worker.publish(delay=60)
        db.sql(
            "create function headrace_test.keep() returns trigger language plpgsql as 'begin return null; end'"
        )
        db.sql(
            "create trigger slippery before delete on headrace.delayed"
            " for each row execute function headrace_test.keep()"
        )
        try:
            assert admin.change(what, id) == "QU023"
        finally:
            db.sql("drop function headrace_test.keep cascade")
        assert db.placement() == {id: ["delayed"]}


def test_two_workers_and_an_administrator_leave_everything_in_one_place(db: Database) -> None:
    """All at once, for a while: whatever happens, each delivery comes to one end."""
    admin, workers = Administrator(db), [Session(db), Session(db)]
    ids = workers[0].publish(60)

    def work(session: Session, each: bool) -> int:
        done = 0
        while claims := session.poll(5, each=each):
            done += session.finish(claims).count("counted")
        return done

    working = [
        Background(work, session, each)
        for session, each in zip(workers, (True, False), strict=True)
    ]
    changed = [admin.change("cancel" if id % 2 else "reset", id) for id in ids]
    done = sum(worker.result() for worker in working)
    while claims := workers[0].poll(50):
        done += workers[0].finish(claims).count("counted")
    cancelled = sum(change is True for id, change in zip(ids, changed, strict=True) if id % 2)
    assert set(changed) <= {True, False, "QU024", "QU023"}
    assert done + cancelled == len(ids)
    assert set(map(tuple, db.placement().values())) == {("outcome",)}


class TestRedrive:
    def buried(self, worker: Session, count: int = 3) -> list[int]:
        claims = claim(worker, count, max_retries=0)
        worker.finish(claims, action="fail")
        return [claimed.id for claimed in claims]

    def redrive(self, session: Session) -> int:
        return session.sql("select done from headrace.redrive('default')")[0].done

    @requirement("G7")
    def test_two_who_redrive_at_once_do_not_wait_and_each_dead_letter_is_redriven_once(
        self, db: Database, worker: Session, admin: Administrator
    ) -> None:
        ids = self.buried(worker)
        admin.begin()
        assert self.redrive(admin) == 3
        assert self.redrive(worker.hurry()) == 0
        assert worker.poll(3) == []
        admin.commit()
        assert db.placement() == {id: ["ready"] for id in ids}
        assert worker.outcomes(ids[0]).count("REDRIVEN") == 1

    def test_what_a_rolled_back_redrive_leaves_the_next_one_takes(
        self, db: Database, worker: Session, admin: Administrator
    ) -> None:
        ids = self.buried(worker)
        admin.begin()
        self.redrive(admin)
        admin.rollback()
        assert self.redrive(worker) == 3
        assert db.placement() == {id: ["ready"] for id in ids}

    @pytest.mark.parametrize("ending", ["commit", "rollback"])
    @requirement("G7")
    @pytest.mark.patient
    def test_a_reset_waits_for_a_redrive_and_finds_what_it_left(
        self, db: Database, worker: Session, admin: Administrator, ending: str
    ) -> None:
        ids = self.buried(worker)
        other = Administrator(db)
        admin.begin()
        self.redrive(admin)
        reset = blocked(db, other, other.change, "reset", ids[0])
        getattr(admin, ending)()
        assert reset.result() is (ending == "rollback")
        assert db.placement()[ids[0]] == ["ready"]
        assert worker.outcomes(ids[0]).count("REDRIVEN") == 1

    def test_a_reset_does_not_hang_beside_a_redrive_that_stays_open(
        self, db: Database, worker: Session, admin: Administrator
    ) -> None:
        ids = self.buried(worker)
        admin.begin()
        self.redrive(admin)
        assert Administrator(db).change("reset", ids[0]) == "QU023"
        admin.commit()

    def test_a_failure_that_is_about_to_be_committed_is_no_dead_letter_yet(
        self, db: Database, worker: Session, admin: Administrator
    ) -> None:
        [claimed] = claim(worker, each=True, max_retries=0)
        worker.begin()
        worker.finish([claimed], action="fail")
        assert self.redrive(admin.hurry()) == 0
        worker.commit()
        assert self.redrive(admin) == 1
