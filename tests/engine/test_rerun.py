"""rerun: an event that has ended is delivered again, under its own id and with its log."""

from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.database import Database
from tests.engine.functions_helpers import Engine, contents, differences, refused
from tests.engine.races_helpers import Background, Session
from tests.requirements import requirement

RERUN = "select headrace.rerun('default', %s)"


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


def completed(engine: Engine, **event: Any) -> int:
    [id] = engine.publish(event)
    engine.end("complete", engine.claim())
    return id


def rerun(engine: Engine, id: int, **options: Any) -> None:
    engine.call("rerun", namespace="default", event_id=id, **options)


@requirement("G7")
def test_a_completed_event_is_delivered_again_with_its_log(engine: Engine, db: Database) -> None:
    id = completed(engine, payload={"a": 1})
    rerun(engine, id, reason="it was wrong", actor="bob")
    assert db.placement() == {id: ["ready"]}
    assert engine.event(id).status == "PENDING"

    claim = engine.claim()
    assert (claim.id, claim.attempt, claim.payload, claim.retry_count) == (id, 2, {"a": 1}, 0)
    engine.end("complete", claim)
    assert [(one.action, one.attempt) for one in engine.trail(id)] == [
        ("EMITTED", None),
        ("PICKED", 1),
        ("COMPLETED", 1),
        ("RERUN", 1),
        ("PICKED", 2),
        ("COMPLETED", 2),
    ]
    [again] = [one for one in engine.trail(id) if one.action == "RERUN"]
    assert (again.worker_id, again.error_message) == ("bob", "it was wrong")
    entry = engine.call("admin_log", namespace="default")[0]
    assert (entry.action, entry.target, entry.actor) == ("rerun", str(id), "bob")
    assert entry.details == {"queue": "main", "reason": "it was wrong"}


@requirement("G6")
def test_the_ends_of_the_drive_before_are_told_as_before_and_end_nothing_new(
    engine: Engine, db: Database
) -> None:
    [id] = engine.publish({})
    first = engine.claim()
    engine.end("complete", first)
    rerun(engine, id)
    second = engine.claim()
    assert engine.finish([first])[0].verdict == "repeated"
    assert engine.finish([first], {"1": {"action": "fail"}})[0].verdict == "conflict"
    assert engine.event(id).status == "PROCESSING"
    engine.end("fail", second)
    assert (engine.event(id).status, engine.event(id).retry_count) == ("PENDING", 1)


@pytest.mark.parametrize("place", ["ready", "progress"])
def test_a_cancelled_event_is_run_again_wherever_it_was(engine: Engine, place: str) -> None:
    [id] = engine.publish({})
    attempt = 0
    if place == "progress":
        attempt = engine.claim().attempt
    engine.call("cancel", namespace="default", event_id=id)
    rerun(engine, id)
    claim = engine.claim()
    assert (claim.id, claim.attempt) == (id, attempt + 1)
    engine.end("complete", claim)
    assert engine.event(id).status == "COMPLETED"


def test_counters_start_at_zero_and_progress_is_dropped(engine: Engine, db: Database) -> None:
    [id] = engine.publish({"max_retries": 2, "backoff": {"kind": "fixed", "delay": 0}})
    engine.end("fail", engine.claim())
    claim = engine.claim()
    saved = {"event": id, "attempt": claim.attempt, "progress": Jsonb(["done"])}
    engine.call("save_progress", namespace="default", **saved)
    engine.end("complete", claim)
    rerun(engine, id)
    assert engine.event(id).retry_count == 0
    assert engine.call("progress", namespace="default", events=[id]) == []
    engine.end("fail", engine.claim())
    assert engine.event(id).status == "PENDING"


def test_one_that_crashed_its_workers_comes_back_as_a_suspect(engine: Engine, db: Database) -> None:
    [id] = engine.publish({})
    for _ in range(2):
        engine.claim(suspects=True)
        db.advance(minutes=2)
        engine.tick()
    engine.end("complete", engine.claim(suspects=True))
    assert engine.event(id).crashes == 1
    rerun(engine, id)
    assert engine.event(id).crashes == 0
    assert db.sql("select suspect from headrace.ready") == [(True,)]


def test_one_of_an_ordering_key_waits_for_its_turn(engine: Engine) -> None:
    id = completed(engine, key="k")
    [other] = engine.publish({"key": "k"})
    claim = engine.claim()
    assert claim.id == other
    rerun(engine, id)
    assert engine.poll() == []
    engine.end("complete", claim)
    assert engine.claim().id == id


def test_it_is_run_again_in_the_queue_that_is_named_and_in_no_other(
    engine: Engine, db: Database
) -> None:
    engine.call("create_queue", namespace="default", queue="other")
    [id] = engine.publish({})
    for queue in ("main", "other"):
        engine.end("complete", engine.claim(queue=queue), queue=queue)
    rerun(engine, id, queue="other")
    assert engine.poll() == []
    assert engine.claim(queue="other").id == id


@pytest.mark.parametrize("state", ["ready", "delayed", "in progress", "waits for its retry"])
def test_an_unfinished_event_is_refused(engine: Engine, db: Database, state: str) -> None:
    [id] = engine.publish({"delay": 60} if state == "delayed" else {})
    if state in ("in progress", "waits for its retry"):
        claim = engine.claim()
        if state != "in progress":
            engine.end("fail", claim)
    refuses(engine, db, id, "QU025", f"event {id} is unfinished")


def test_a_dead_letter_is_refused_with_what_to_do(engine: Engine, db: Database) -> None:
    [id] = engine.publish({"max_retries": 0})
    engine.end("fail", engine.claim())
    refuses(engine, db, id, "QU024", f"event {id} is a dead letter: redrive it")
    engine.call("purge", namespace="default", queue="main", what="dead_letters")
    refuses(engine, db, id, "QU024", "its dead letter was purged")


def test_an_erased_event_is_refused(engine: Engine, db: Database) -> None:
    id = completed(engine)
    engine.call("erase", namespace="default", event_id=id)
    refuses(engine, db, id, "QU024", f"event {id} was erased")


def test_an_expired_or_unknown_event_is_refused(engine: Engine, db: Database) -> None:
    id = completed(engine)
    db.advance(days=400)
    while engine.tick(upkeep=True).more:
        pass
    for unknown in (id, 10**9):
        refuses(engine, db, unknown, "QU012", f"there is no event {unknown}")


def test_an_event_that_the_queue_never_got_is_refused(engine: Engine, db: Database) -> None:
    id = completed(engine)
    engine.call("create_queue", namespace="default", queue="later")
    with refused("QU012", "was not delivered to the queue"):
        rerun(engine, id, queue="later")


def refuses(engine: Engine, db: Database, id: int, sqlstate: str, match: str) -> None:
    before = contents(db)
    with refused(sqlstate, match):
        rerun(engine, id)
    assert differences(before, contents(db)) <= {"locks"}


def test_one_of_a_past_month_is_safe_from_a_retention_that_does_not_see_it(
    engine: Engine, db: Database
) -> None:
    completed(engine, payload={"a": 1})
    [(id,)] = db.sql("select id from headrace.events")
    db.advance(days=40)
    rerun(engine, id)
    db.sql("delete from headrace.events")  # as whoever looked for living ones before
    claim = engine.claim()
    assert claim.payload == {"a": 1}
    engine.end("complete", claim)
    rerun(engine, id)
    assert db.sql("select count(*) from headrace.events_carried") == [(1,)]


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_it_needs_to_see_the_latest_commits(engine: Engine, db: Database, isolation: str) -> None:
    id = completed(engine)
    session = Session(db)
    session.begin(isolation)
    with refused("QU030"):
        session.sql(RERUN, [id])


@requirement("G7")
@pytest.mark.parametrize("ending", ["commit", "rollback"])
@pytest.mark.patient
def test_of_two_calls_at_once_one_runs_it_again(db: Database, engine: Engine, ending: str) -> None:
    id = completed(engine)
    one, other = Session(db), Session(db)
    one.begin()
    one.sql(RERUN, [id])
    waiting = Background(other.sql, RERUN, [id])
    db.wait_until_blocked(other.connection)
    getattr(one, ending)()
    if ending == "commit":
        with refused("QU025"):
            waiting.result()
    else:
        waiting.result()
    assert db.placement() == {id: ["ready"]}


def test_it_does_not_hang_beside_an_erasure_that_stays_open(db: Database, engine: Engine) -> None:
    id = completed(engine)
    one = Session(db)
    one.begin()
    one.sql("select headrace.erase('default', %s)", [id])
    with refused("QU023"):
        rerun(engine, id)
    one.commit()
    with refused("QU024", "erased"):
        rerun(engine, id)
