"""purge: what waits in a queue, or its dead letters, is removed step by step, and the log says by whom."""

from typing import Any

import pytest

from tests.database import Database
from tests.engine.functions_helpers import Engine, contents, differences, refused
from tests.engine.races_helpers import Session
from tests.requirements import requirement

WAITING = ("ready", "delayed")
every_kind = pytest.mark.parametrize("what", ["ready", "delayed", "dead_letters"])


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


def purge(engine: Engine, what: str | None, **arguments: Any) -> Any:
    [answer] = engine.call(
        "purge", **{"namespace": engine.namespace, "queue": "main", "what": what, **arguments}
    )
    return answer


def put(engine: Engine, what: str, count: int = 1, **event: Any) -> list[int]:
    """Deliveries that are ready or delayed, or dead letters."""
    if what == "delayed":
        event["delay"] = 3600
    ids = engine.publish(*[{"max_retries": 0, **event}] * count)
    if what == "dead_letters":
        claims = engine.poll(count, types=[event.get("type", "event")])
        engine.finish(claims, {str(n): {"action": "fail"} for n in range(1, count + 1)})
    return ids


class TestPurge:
    @every_kind
    def test_what_is_asked_for_goes_and_everything_else_stays(
        self, engine: Engine, db: Database, what: str
    ) -> None:
        working = put(engine, "ready", 4, type="w")
        engine.poll(2)
        engine.poll(2, each=True)
        ids = {kind: put(engine, kind, 3, type=kind) for kind in (*WAITING, "dead_letters")}
        before = db.placement()
        assert (purge(engine, what).done, purge(engine, what).done) == (3, 0)
        after = db.placement()
        assert {id for id in before if before[id] != after[id]} == set(ids[what])
        assert {tuple(after[id]) for id in ids[what]} == {("outcome",)}
        assert all(after[id][0] in ("lease", "held") for id in working)
        status = "FAILED" if what == "dead_letters" else "CANCELLED"
        assert {engine.event(id).status for id in ids[what]} == {status}

    @every_kind
    @requirement("G17")
    def test_the_log_says_who_and_why(self, engine: Engine, what: str) -> None:
        ids = put(engine, what, 2)
        purge(engine, what, reason="obsolete", actor="bob")
        action = "PURGED" if what == "dead_letters" else "CANCELLED"
        for id in ids:
            entry = engine.trail(id)[-1]
            assert (entry.action, entry.worker_id, entry.error_message) == (
                action,
                "bob",
                "obsolete",
            )

    def test_what_came_back_goes_too(self, engine: Engine, db: Database) -> None:
        [released, retried, suspect] = engine.publish({}, {}, {})
        claims = engine.poll(3)
        engine.end("release", claims[0])
        engine.end("fail", claims[1])
        db.advance(seconds=61)
        engine.tick()
        assert purge(engine, "ready").done == 2
        assert purge(engine, "delayed").done == 1
        assert {engine.event(id).status for id in (released, retried, suspect)} == {"CANCELLED"}
        assert engine.event(retried).attempts == 1

    @every_kind
    def test_only_some_types(self, engine: Engine, db: Database, what: str) -> None:
        paid, sent = put(engine, what, 2, type="order.paid"), put(engine, what, type="order.sent")
        other = put(engine, what, type="user.created")
        assert purge(engine, what, types=["order.p*", "nothing"]).done == 2
        assert purge(engine, what, types=["order.p*"]).done == 0
        places = db.placement()
        assert {tuple(places[id]) for id in paid} == {("outcome",)}
        assert ["outcome"] not in [places[id] for id in sent + other]

    def test_dead_letters_by_their_ids(self, engine: Engine, db: Database) -> None:
        ids = put(engine, "dead_letters", 3)
        assert purge(engine, "dead_letters", ids=[ids[1], 10**15]).done == 1
        assert list(db.placement().values()) == [["dead"], ["outcome"], ["dead"]]
        for what in WAITING:
            with refused("QU001", match="only dead letters are purged by ids or fingerprint"):
                purge(engine, what, ids=[1])

    def test_dead_letters_by_the_kind_of_error(self, engine: Engine, db: Database) -> None:
        ids = put(engine, "dead_letters", 2)
        other = put(engine, "dead_letters")
        db.sql("update headrace.dead_letters set fingerprint = 'x' where event = %s", other)
        assert purge(engine, "dead_letters", fingerprint="x").done == 1
        assert [db.placement()[id] for id in ids] == [["dead"], ["dead"]]
        with refused("QU001"):
            purge(engine, "ready", fingerprint="x")

    @requirement("G7")
    def test_a_dead_letter_that_was_purged_cannot_be_reset(self, engine: Engine) -> None:
        [id] = put(engine, "dead_letters")
        purge(engine, "dead_letters")
        with refused("QU024", match="ended as FAILED"):
            engine.call("reset", namespace="default", event_id=id)

    @every_kind
    def test_a_call_removes_about_so_many_and_says_that_there_is_more(
        self, engine: Engine, db: Database, what: str
    ) -> None:
        put(engine, what, 5)
        steps, answer = 1, purge(engine, what, most=2)
        while answer.more:
            put(engine, what)  # what comes later stays
            steps += 1
            answer = purge(engine, what, most=2, started_at=answer.started_at, done=answer.done)
        assert answer.done == 5
        assert list(db.placement().values())[:5] == [["outcome"]] * 5
        assert ["outcome"] not in [*db.placement().values()][5:]

    @every_kind
    @requirement("G16")
    def test_no_other_queues_or_namespaces(self, engine: Engine, db: Database, what: str) -> None:
        engine.call("create_namespace", namespace="elsewhere")
        put(engine, what)
        assert purge(Engine(db, "elsewhere"), what).done == 0

    def test_what_makes_no_sense_is_refused(self, engine: Engine, db: Database) -> None:
        put(engine, "ready")
        before = contents(db)
        for arguments, sqlstate in (
            ({"what": "held"}, "QU001"),
            ({"what": None}, "QU001"),
            ({"most": 0}, "QU001"),
            ({"most": None}, "QU001"),
            ({"types": []}, "QU001"),
            ({"types": [], "what": "dead_letters"}, "QU001"),
            ({"actor": "x" * 201}, "QU001"),
            ({"namespace": "nowhere"}, "QU010"),
            ({"queue": "nowhere"}, "QU011"),
        ):
            with refused(sqlstate):
                engine.call(
                    "purge",
                    **{"namespace": "default", "queue": "main", "what": "ready", **arguments},
                )
        assert differences(before, contents(db)) == set()

    @every_kind
    def test_it_passes_by_what_somebody_has_locked(
        self, db: Database, engine: Engine, what: str
    ) -> None:
        [locked], _ = put(engine, what), put(engine, what)
        other = Session(db)
        other.begin()
        other.sql(f"select 1 from headrace.{what} where event = %s for update", [locked])
        engine.connection.execute("set lock_timeout = '25ms'")
        assert purge(engine, what).done == 1
        other.rollback()
        assert purge(engine, what).done == 1
        assert {tuple(places) for places in db.placement().values()} == {("outcome",)}

    def test_a_poll_passes_by_what_is_being_purged(self, db: Database, engine: Engine) -> None:
        put(engine, "ready", 2)
        with engine.connection.transaction():
            assert purge(engine, "ready").done == 2
            assert Session(db).hurry().poll(5) == []
        assert Session(db).poll(5) == []


def test_those_in_line_for_their_keys_turn_go_too(engine: Engine, db: Database) -> None:
    """The tables as they are: which key a delivery has is none of purge's business."""
    [id] = engine.publish({})
    db.sql("""
        with gone as (delete from headrace.ready returning *)
        insert into headrace.keyed (queue, key, event, created_at, route, priority)
        select queue, 'k', event, created_at, route, priority from gone""")
    assert purge(engine, "ready").done == 1
    assert engine.event(id).status == "CANCELLED"
    assert db.sql("select event, key from headrace.ready") == [(0, "k")]
