"""erase: what an event said is nowhere any more, and what happened to it is still told."""

from typing import Any

import psycopg
import pytest

from tests.database import Database
from tests.engine.functions_helpers import Engine, contents, differences, refused
from tests.engine.races_helpers import ISOLATION_LEVELS, Session, blocked
from tests.requirements import requirement

SECRET = "bob@example.com"
PERSONAL = {
    "type": "user.created",
    "payload": {"mail": SECRET},
    "title": SECRET,
    "description": SECRET,
    "correlation_id": SECRET,
    "source": {"name": SECRET},
    "tags": ["a"],
    "max_retries": 2,
    "backoff": {"kind": "fixed", "delay": 0},
}


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


def erase(engine: Engine, event: int, **arguments: Any) -> bool:
    [[erased]] = engine.call(
        "erase", **{"namespace": engine.namespace, "event_id": event, **arguments}
    )
    return erased


def mentions(db: Database) -> set[str]:
    """The tables that have the secret."""
    return {table for table, rows in contents(db).items() if any(SECRET in row for row in rows)}


def completed(engine: Engine) -> int:
    [id] = engine.publish(PERSONAL)
    engine.end("fail", engine.claim(), error=f"cannot write to {SECRET}")
    engine.end("complete", engine.claim())
    return id


def dead(engine: Engine) -> int:
    [id] = engine.publish(PERSONAL)
    for _ in range(2):
        engine.end("fail", engine.claim(), error=f"cannot write to {SECRET}")
    return id


def ready(engine: Engine) -> int:
    return engine.publish(PERSONAL)[0]


def delayed(engine: Engine) -> int:
    return engine.publish({**PERSONAL, "delay": 60})[0]


def held(engine: Engine) -> int:
    id = ready(engine)
    engine.poll(each=True)
    return id


def batch(engine: Engine) -> int:
    id = ready(engine)
    engine.publish({"type": "other"})
    engine.poll(2)
    return id


def redriven(engine: Engine) -> int:
    id = dead(engine)
    engine.call("redrive", namespace="default")
    return id


ENDED, LIVING = [completed, dead], [ready, delayed, held, batch, redriven]


@pytest.mark.parametrize("place", ENDED + LIVING, ids=lambda place: place.__name__)
def test_what_it_said_is_nowhere_any_more(engine: Engine, db: Database, place: Any) -> None:
    id = place(engine)
    assert mentions(db) >= {"events"}
    assert erase(engine, id)
    assert mentions(db) == set()
    event = engine.event(id)
    assert (event.payload, event.details) == ({"erased": True}, None)
    assert (event.type, event.tags) == ("user.created", ["a"])


@pytest.mark.parametrize("place", ENDED + LIVING, ids=lambda place: place.__name__)
@requirement("G17")
def test_what_happened_is_still_told(engine: Engine, place: Any) -> None:
    id = place(engine)
    before = engine.trail(id)
    erase(engine, id, reason="asked for", actor="bob")
    trail = engine.trail(id)
    seen = {entry.id: (entry.action, entry.worker_id, entry.attempt) for entry in trail}
    for entry in before:
        assert seen[entry.id] == (entry.action, entry.worker_id, entry.attempt)
    last = trail[-1]
    assert (last.action, last.worker_id, last.error_message, last.queue) == (
        "ERASED",
        "bob",
        "asked for",
        None,
    )
    errors = {entry.error_message for entry in trail if entry.action == "FAILED"}
    assert errors <= {"(erased)"}


@pytest.mark.parametrize("place", LIVING, ids=lambda place: place.__name__)
@requirement("G7")
def test_what_is_not_finished_is_cancelled(engine: Engine, db: Database, place: Any) -> None:
    id = place(engine)
    erase(engine, id)
    assert engine.event(id).status == "CANCELLED"
    assert db.placement()[id] == ["outcome"]
    assert engine.actions(id)[-2:] == ["CANCELLED", "ERASED"]


@pytest.mark.parametrize(
    ("place", "status"), [(completed, "COMPLETED"), (dead, "FAILED")], ids=["completed", "dead"]
)
@requirement("G7")
def test_what_has_ended_stays_ended(engine: Engine, place: Any, status: str) -> None:
    id = place(engine)
    erase(engine, id)
    assert engine.event(id).status == status
    with refused("QU024"):
        engine.call("reset", namespace="default", event_id=id)


@requirement("G6")
def test_whoever_works_on_it_loses_the_lease(engine: Engine) -> None:
    [id] = engine.publish(PERSONAL)
    claim = engine.claim(each=True)
    erase(engine, id)
    with refused("QU020"):
        engine.end("fail", claim, error=f"cannot write to {SECRET}")


def test_repeating_it_changes_nothing(engine: Engine, db: Database) -> None:
    id = dead(engine)
    erase(engine, id)
    before = contents(db)
    assert not erase(engine, id, reason="again")
    assert differences(before, contents(db)) == set()


def test_other_events_stay_as_they_are(engine: Engine, db: Database) -> None:
    id, other = completed(engine), dead(engine)
    before = engine.event(other), engine.trail(other), engine.dead_letter(other)
    erase(engine, id)
    assert (engine.event(other), engine.trail(other), engine.dead_letter(other)) == before


def test_a_dead_letter_whose_month_is_gone_is_erased(engine: Engine, db: Database) -> None:
    id = dead(engine)
    db.sql("delete from headrace.events")  # as retention does
    assert erase(engine, id)
    assert mentions(db) == set()
    assert not erase(engine, id)
    assert engine.actions(id)[-1] == "ERASED"


def test_what_is_not_there_is_refused(engine: Engine, db: Database) -> None:
    engine.call("create_namespace", namespace="elsewhere")
    id = completed(engine)
    for namespace, event, sqlstate in (
        ("nowhere", id, "QU010"),
        ("elsewhere", id, "QU012"),
        ("default", 10**15, "QU012"),
        ("default", None, "QU012"),
    ):
        with refused(sqlstate):
            engine.call("erase", namespace=namespace, event_id=event)
    assert "events" in mentions(db)


@pytest.mark.parametrize("isolation", ISOLATION_LEVELS[1:])
def test_it_needs_read_committed(db: Database, engine: Engine, isolation: str) -> None:
    id, session = completed(engine), Session(db)
    session.begin(isolation)
    with refused("QU030"):
        session.sql("select headrace.erase('default', %s)", [id])


class TestRaces:
    def erase(self, session: Session, event: int) -> bool | str:
        try:
            return session.sql("select headrace.erase('default', %s)", [event])[0][0]
        except psycopg.Error as error:
            return error.sqlstate or str(error)

    @pytest.mark.parametrize("each", [False, True])
    @pytest.mark.patient
    def test_the_error_of_a_finish_that_is_about_to_commit_is_erased_too(
        self, db: Database, engine: Engine, each: bool
    ) -> None:
        [id] = engine.publish({**PERSONAL, "max_retries": 0})
        worker, admin = Session(db), Session(db)
        [claimed] = worker.poll(each=each)
        worker.begin()
        worker.finish([claimed], action="fail", error=SECRET)
        erasing = blocked(db, admin, self.erase, admin, id)
        worker.commit()
        assert erasing.result() is True
        assert mentions(db) == set()
        assert engine.event(id).status == "FAILED"

    def test_a_handlers_open_transaction_is_not_waited_for(
        self, db: Database, engine: Engine
    ) -> None:
        [id] = engine.publish(PERSONAL)
        worker, admin = Session(db), Session(db)
        [claimed] = worker.poll(each=True)
        worker.begin()
        worker.finish([claimed])
        before = contents(db)
        assert self.erase(admin, id) == "QU023"
        assert differences(before, contents(db)) == set()
        worker.commit()
        assert self.erase(admin, id) is True

    @pytest.mark.patient
    def test_a_redrive_that_is_about_to_commit_brings_nothing_back(
        self, db: Database, engine: Engine
    ) -> None:
        id = dead(engine)
        other, admin = Session(db), Session(db)
        other.begin()
        other.sql("select headrace.redrive('default')")
        erasing = blocked(db, admin, self.erase, admin, id)
        other.commit()
        assert erasing.result() is True
        assert mentions(db) == set()
        assert engine.event(id).status == "CANCELLED"

    @pytest.mark.patient
    def test_two_who_erase_do_it_once(self, db: Database, engine: Engine) -> None:
        id = dead(engine)
        one, two = Session(db), Session(db)
        one.begin()
        assert self.erase(one, id) is True
        erasing = blocked(db, two, self.erase, two, id)
        one.commit()
        assert erasing.result() is False
        assert engine.actions(id).count("ERASED") == 1
