"""why: the reasons why a delivery is not running, each of them, and together."""

import json
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from tests.database import Database
from tests.engine.functions_helpers import Engine, refused, stop_the_clock


@pytest.fixture
def engine(db: Database) -> Engine:
    stop_the_clock(db)
    return Engine(db)


def why(engine: Engine, event_id: int, queue: str | None = "main") -> list[Any]:
    return engine.call("why", namespace=engine.namespace, event_id=event_id, queue=queue)


def codes(engine: Engine, event_id: int) -> list[str]:
    return [one.code for one in why(engine, event_id)]


def only(engine: Engine, event_id: int) -> Any:
    [one] = why(engine, event_id)
    return one


def node(engine: Engine, handles: list[str], node_id: str = "n1") -> str:
    instance = str(uuid4())
    engine.call(
        "register_node",
        namespace="default",
        node_id=node_id,
        instance=instance,
        handles=handles,
        worker=f"{node_id}:1",
    )
    return instance


@pytest.fixture
def handled(engine: Engine) -> str:
    """A live node handles everything; its instance."""
    return node(engine, ["*"])


@pytest.mark.usefixtures("handled")
class TestWaiting:
    def test_what_waits_for_nothing_is_next(self, engine: Engine) -> None:
        [id] = engine.publish({})
        one = only(engine, id)
        assert (one.queue, one.code, one.until) == ("main", "in_line", None)
        assert one.since == engine.event(id).created_at
        assert one.message.startswith("it is next: a worker that has room takes it")
        assert one.about == {
            "ahead": 0,
            "ahead_is_exact": True,
            "in_progress": 0,
            "per_second": 0,
        }

    def test_those_before_it_are_counted_and_timed(self, engine: Engine, db: Database) -> None:
        for claimed in [engine.publish(*[{}] * 30), engine.poll(max_events=30)][1:]:
            engine.finish(claimed)
        ids = engine.publish(*[{}] * 200)
        engine.poll(max_events=5)
        one = only(engine, ids[104])
        assert one.code == "in_line"
        assert one.about == {
            "ahead": 99,
            "ahead_is_exact": True,
            "in_progress": 5,
            "per_second": 0.1,
            "seconds": 990,
        }
        assert one.message == (
            "99 deliveries are claimed before it; 5 in progress. At the rate of the last five "
            "minutes (0.10 a second) its turn comes in about 990 s"
        )

    @pytest.mark.parametrize("order", ["fair", "oldest"])
    def test_the_position_is_where_claims_come_to_it(self, engine: Engine, order: str) -> None:
        engine.call(
            "change_queue",
            namespace="default",
            queue="main",
            settings=json.dumps({"order": order}),
        )
        for _ in range(3):
            engine.publish(*[{"type": "a"}] * 20, *[{"type": "b", "tags": ["x"]}] * 3)
            engine.publish({"type": "c", "priority": 1}, {"type": "a", "priority": 7})
        every = sorted(
            id for (id,) in engine.db.sql("select id from headrace.event_queue where type <> 'b'")
        )
        said = {id: only(engine, id).about["ahead"] for id in every}
        claimed = [one.id for one in engine.poll(max_events=1000)]
        assert len(claimed) == 75
        order_said = sorted(every, key=lambda id: said[id])
        more_urgent = [id for id in claimed if engine.event(id).priority == 1]
        assert order_said[: len(more_urgent)] == more_urgent
        for id in every:
            if order == "oldest" or engine.event(id).priority != 5:
                assert said[id] == claimed.index(id)

    def test_more_than_ten_thousand_are_not_counted(self, engine: Engine) -> None:
        for _ in range(11):
            engine.publish(*[{}] * 1000)
        [id] = engine.publish({})
        about = only(engine, id).about
        assert (about["ahead"], about["ahead_is_exact"]) == (10_000, False)
        assert "10000 deliveries or more are claimed before it" in only(engine, id).message

    def test_a_first_delay(self, engine: Engine, db: Database) -> None:
        [id] = engine.publish({"delay": 60})
        one = only(engine, id)
        assert (one.code, one.until) == ("delayed", engine.now() + timedelta(seconds=60))
        assert one.message.startswith("it is delayed until ")
        db.advance(seconds=61)
        assert "That time is over: the next tick makes it ready" in only(engine, id).message
        engine.tick()
        assert codes(engine, id) == ["in_line"]

    def test_that_nothing_ticks_is_said(self, engine: Engine, db: Database) -> None:
        [id] = engine.publish({"delay": 60})
        engine.tick()
        db.advance(minutes=10)
        assert "but none has run since 20" in why(engine, id)[0].message

    def test_a_retry_with_its_error(self, engine: Engine) -> None:
        [id] = engine.publish({"max_retries": 3})
        engine.end("fail", engine.claim(), error="Traceback\nValueError: no such address")
        one = only(engine, id)
        assert (one.code, one.until) == ("retry", engine.event(id).next_retry_at)
        assert one.about == {"failures": 1, "max_retries": 3, "error": "Traceback"}
        assert one.message.startswith("it has failed 1 of 3 times, and is retried at ")

    def test_a_release_that_is_not_a_retry(self, engine: Engine) -> None:
        [id] = engine.publish({"max_retries": 3})
        engine.end("fail", engine.claim(), error="first")
        engine.call("reset", namespace="default", event_id=id)
        for _ in range(2):
            engine.end("release", engine.claim())
        assert codes(engine, id) == ["released"]

    def test_a_paused_queue_and_by_whom(self, engine: Engine) -> None:
        [id] = engine.publish({})
        engine.call("pause", namespace="default", queue="main", actor="ops")
        one = only(engine, id)
        assert (one.code, one.since, one.about) == ("queue_paused", engine.now(), {"actor": "ops"})
        assert one.message.endswith(" by ops")

    def test_a_draining_queue_still_hands_out(self, engine: Engine) -> None:
        [id] = engine.publish({})
        engine.call("drain", namespace="default", queue="main", actor="ops")
        assert codes(engine, id) == ["queue_draining", "in_line"]
        assert engine.claim().id == id

    def test_the_turn_of_its_key(self, engine: Engine) -> None:
        first, second, third = engine.publish(*[{"key": "k"}] * 3)
        assert codes(engine, first) == ["in_line"]
        [before] = why(engine, third)
        assert (before.code, before.about) == ("key_turn", {"key": "k", "event": first, "ahead": 2})
        assert engine.claim(worker="w1").id == first
        active, turn = why(engine, third)
        assert (active.code, active.since) == ("key_in_progress", engine.now())
        assert active.about == {"key": "k", "event": first, "worker": "w1"}
        assert (turn.code, turn.about) == ("key_turn", {"key": "k", "event": second, "ahead": 1})
        assert (
            turn.message
            == f"an event of its ordering key 'k' goes first, beginning with event {second}"
        )

    def test_the_retry_of_its_key(self, engine: Engine) -> None:
        first, second = engine.publish(*[{"key": "k"}] * 2)
        engine.end("fail", engine.claim())
        [one] = why(engine, second)
        assert (one.code, one.until) == ("key_in_progress", engine.event(first).next_retry_at)
        assert "worker" not in one.about
        assert codes(engine, first) == ["retry"]

    def test_a_suspect(self, engine: Engine, db: Database) -> None:
        [id] = engine.publish({})
        engine.claim(worker="w1")
        db.advance(seconds=61)
        engine.tick()
        one = only(engine, id)
        assert (one.code, one.about) == ("suspect", {"worker": "w1"})

    def test_many_reasons_in_their_order(self, engine: Engine, db: Database) -> None:
        _, second = engine.publish(*[{"key": "k"}] * 2)
        engine.claim()
        engine.call("pause", namespace="default", queue="main")
        db.advance(minutes=5)  # the node's heartbeats have stopped
        db.sql(
            "update headrace.leases set until = headrace._now() + interval '1 hour', worker = 'n1:1'"
        )
        assert codes(engine, second) == ["queue_paused", "key_in_progress", "unhandled"]
        [delayed] = engine.publish({"delay": 60})
        assert codes(engine, delayed) == ["delayed", "queue_paused", "unhandled"]


class TestHandlers:
    def test_a_type_that_no_node_ever_handled(self, engine: Engine) -> None:
        [id] = engine.publish({"type": "a"})
        one = only(engine, id)
        assert (one.code, one.about, one.since) == ("unhandled", {"type": "a"}, None)
        assert one.message == "no live node handles the type 'a', and none has in the last month"

    def test_the_node_that_did_last(self, engine: Engine, db: Database) -> None:
        node(engine, ["a"], "old")
        db.advance(minutes=1)
        instance = node(engine, ["a*"], "new")
        node(engine, ["b"], "other")
        [id] = engine.publish({"type": "ab"})
        assert codes(engine, id) == ["in_line"]
        engine.call("unregister_node", namespace="default", node_id="new", instance=instance)
        stopped = engine.now()
        db.advance(minutes=1)
        one = only(engine, id)
        assert (one.code, one.since) == ("unhandled", stopped)
        assert (one.about["type"], one.about["node"]) == ("ab", "new")
        assert "node new did last" in one.message

    def test_workers_that_are_not_nodes_may_handle_everything(self, engine: Engine) -> None:
        engine.publish({})
        engine.claim(worker="over HTTP")
        [id] = engine.publish({})
        assert codes(engine, id) == ["in_line"]


class TestClaimed:
    def test_a_worker_has_it(self, engine: Engine) -> None:
        [id] = engine.publish({})
        engine.claim(worker="w1")
        one = only(engine, id)
        assert (one.code, one.since) == ("in_progress", engine.now())
        assert one.until == engine.now() + timedelta(minutes=1)
        assert one.about == {"worker": "w1", "attempt": 1}

    def test_a_node_has_it_by_its_name(self, engine: Engine, handled: str) -> None:
        [id] = engine.publish({})
        engine.claim(worker="n1:1", instance=handled)
        assert only(engine, id).about == {"worker": "n1:1", "node": "n1", "attempt": 1}
        assert "at node n1 (n1:1)" in only(engine, id).message

    @pytest.mark.parametrize("each", [False, True])
    def test_its_lease_is_over(self, engine: Engine, db: Database, each: bool) -> None:
        [id] = engine.publish({})
        claimed = engine.claim(worker="w1", each=each)
        db.advance(seconds=61)
        one = only(engine, id)
        assert (one.code, one.since) == ("lease_expired", claimed.lease_expires_at)
        assert one.message.endswith("the next tick hands it out again")


class TestEnded:
    def test_completed(self, engine: Engine) -> None:
        [id] = engine.publish({})
        engine.finish([engine.claim(worker="w1")])
        one = only(engine, id)
        assert (one.code, one.since) == ("ended", engine.event(id).updated_at)
        assert (one.about["status"], one.about["by"]) == ("COMPLETED", "w1")

    def test_cancelled_by_whom_and_why(self, engine: Engine) -> None:
        [id] = engine.publish({})
        engine.call("cancel", namespace="default", event_id=id, actor="ada", reason="a mistake")
        one = only(engine, id)
        assert (one.about["status"], one.about["by"], one.about["reason"]) == (
            *("CANCELLED", "ada", "a mistake"),
        )
        assert one.message.endswith(", by ada: a mistake")

    def test_a_dead_letter_and_its_error(self, engine: Engine) -> None:
        [id] = engine.publish({"max_retries": 0})
        engine.end("fail", engine.claim(), error="ValueError: no such address")
        one = only(engine, id)
        assert (one.code, one.about["status"]) == ("ended", "FAILED")
        assert one.message.endswith(": ValueError: no such address")
        engine.call("purge", namespace="default", queue="main", what="dead_letters")
        assert only(engine, id).about["status"] == "FAILED"
        assert only(engine, id).message.startswith("it has ended as FAILED at ")

    def test_erased(self, engine: Engine) -> None:
        [id] = engine.publish({"payload": "secret"})
        engine.call("erase", namespace="default", event_id=id, actor="ada")
        assert only(engine, id).about["by"] == "ada"


class TestQueues:
    def test_each_delivery_has_its_own_reasons(self, engine: Engine, handled: str) -> None:
        engine.call("create_queue", namespace="default", queue="second", types=["a"])
        [id] = engine.publish({"type": "a"})
        engine.finish([engine.claim()])
        engine.call("pause", namespace="default", queue="second")
        found = why(engine, id, None)
        assert [(one.queue, one.code) for one in found] == [
            ("main", "ended"),
            ("second", "queue_paused"),
        ]
        assert [(one.queue, one.code) for one in why(engine, id, "second")] == [
            ("second", "queue_paused")
        ]
        [other] = engine.publish({"type": "b"})
        assert [one.queue for one in why(engine, other, None)] == ["main"]

    @pytest.mark.parametrize(
        ("settings", "cause", "said"),
        [
            (
                {"types": ["x.*"]},
                "filter",
                "the queue q takes types x.*, and this event is of type a with the tags t",
            ),
            (
                {"tags": ["u"]},
                "filter",
                "takes every type with the tags u, and this event is of type a with the tags t",
            ),
            ({"takes": False}, "switched_off", "is switched off"),
        ],
    )
    def test_a_queue_that_did_not_get_it(
        self, engine: Engine, settings: dict[str, Any], cause: str, said: str
    ) -> None:
        takes = {} if settings.pop("takes", True) else {"settings": '{"takes": false}'}
        engine.call("create_queue", namespace="default", queue="q", **settings)
        engine.call("change_queue", namespace="default", queue="q", **(takes or {"settings": "{}"}))
        [id] = engine.publish({"type": "a", "tags": ["t"]})
        [one] = why(engine, id, "q")
        assert (one.queue, one.code, one.about) == ("q", "not_delivered", {"cause": cause})
        assert said in one.message

    def test_a_queue_that_began_later(self, engine: Engine) -> None:
        [id] = engine.publish({})
        engine.call("create_queue", namespace="default", queue="q")
        [one] = why(engine, id, "q")
        assert one.about == {"cause": "earlier"}

    def test_a_queue_that_is_being_filled(self, engine: Engine) -> None:
        [id] = engine.publish({})
        engine.call("create_queue", namespace="default", queue="q", since="-infinity")
        [one] = why(engine, id, "q")
        assert one.about == {"cause": "filling"}

    def test_an_event_that_no_queue_takes(self, engine: Engine) -> None:
        engine.call("change_queue", namespace="default", queue="main", settings='{"takes": false}')
        [id] = engine.publish({})
        [one] = why(engine, id, None)
        assert (one.queue, one.code, one.about) == (None, "no_queue", {"queues": 0})

    def test_an_event_of_months_that_are_gone(self, engine: Engine, db: Database) -> None:
        [id] = engine.publish({})
        engine.finish([engine.claim()])
        for _ in range(9):  # the months that are kept, and some
            engine.tick(upkeep=True)
            db.advance(days=31)
        engine.tick(upkeep=True)
        assert db.sql("select count(*) from headrace.events") == [(0,)]
        [one] = why(engine, id, None)
        assert (one.queue, one.code) == (None, "expired")

    def test_what_never_was_is_refused(self, engine: Engine) -> None:
        for arguments, sqlstate in (
            ({"event_id": 99}, "QU012"),
            ({"event_id": -1}, "QU012"),
            ({"event_id": None}, "QU012"),
            ({"event_id": 1, "queue": "nowhere"}, "QU011"),
            ({"event_id": 1, "namespace": "nowhere"}, "QU010"),
        ):
            with refused(sqlstate):
                engine.call("why", **{"namespace": "default", **arguments})

    def test_another_namespaces_event_is_none(self, engine: Engine, db: Database) -> None:
        engine.call("create_namespace", namespace="other")
        [id] = engine.publish({})
        with refused("QU012"):
            why(Engine(db, "other"), id, None)
