"""What is taken out of a claim is told to its worker: by the next heartbeat, and to a node at once."""

from typing import Any
from uuid import uuid4

import pytest

from tests.database import Database
from tests.engine.functions_helpers import Engine, contents, differences, refused, stop_the_clock

INSTANCE = str(uuid4())


@pytest.fixture
def engine(db: Database) -> Engine:
    stop_the_clock(db)
    return Engine(db)


class Ear:
    """A session of a node that hears."""

    def __init__(self, db: Database, instance: str = INSTANCE) -> None:
        self.connection = db.connect()
        [(self.channel,)] = self.connection.execute(
            "select headrace.hear_interruptions(%s)", [instance]
        )

    def heard(self) -> list[str]:
        self.connection.execute("select 1")
        return [notify.payload for notify in self.connection.notifies(timeout=0)]


def extend(engine: Engine, *leases: int, namespace: str = "default") -> dict[int, tuple[str, Any]]:
    rows = engine.call("extend", namespace=namespace, queue="main", leases=list(leases))
    return {row.lease: (row.state, row.taken) for row in rows}


def claim(engine: Engine, size: int, **arguments: Any) -> tuple[int, list[int]]:
    engine.publish(*[{}] * size)
    claimed = engine.poll(max_events=size, **arguments)
    return claimed[0].lease, [one.id for one in claimed]


ACTIONS = {"cancel": "CANCELLED", "reset": "RESET", "erase": "ERASED"}


@pytest.mark.parametrize("each", [False, True], ids=["shared", "own"])
@pytest.mark.parametrize("action", ACTIONS)
def test_a_heartbeat_tells_which_members_were_taken_and_how(
    engine: Engine, action: str, each: bool
) -> None:
    lease, ids = claim(engine, 3, each=each)
    assert extend(engine, lease) == {lease: ("held", None)}
    engine.call(action, namespace="default", event_id=ids[1])
    told = {str(ids[1]): ACTIONS[action]}
    for _ in range(2):  # a reply may be lost
        assert extend(engine, lease) == {lease: ("held", told)}
    for id in (ids[0], ids[2]):
        engine.call(action, namespace="default", event_id=id)
    assert extend(engine, lease) == {lease: ("lost", dict.fromkeys(map(str, ids), ACTIONS[action]))}


@pytest.mark.parametrize("each", [False, True], ids=["shared", "own"])
def test_what_has_ended_was_not_taken(engine: Engine, each: bool) -> None:
    engine.publish(*[{}] * 4)
    claims = engine.poll(max_events=4, each=each)
    engine.finish(claims[:1])
    engine.end("fail", claims[1])
    engine.end("release", claims[2])
    lease = claims[0].lease
    assert extend(engine, lease) == {lease: ("held", None)}
    with refused("QU024"):
        engine.call("cancel", namespace="default", event_id=claims[0].id)
    engine.call("cancel", namespace="default", event_id=claims[1].id)  # it waits for its retry
    assert extend(engine, lease) == {lease: ("held", None)}


def test_a_worker_that_knows_only_its_event_is_told(engine: Engine) -> None:
    _, ids = claim(engine, 2, each=True, worker="w1")
    engine.call("cancel", namespace="default", event_id=ids[0])
    [one] = engine.call("heartbeat", namespace="default", event=ids[1], worker="w1")
    assert (one.state, one.taken) == ("held", {str(ids[0]): "CANCELLED"})
    [other] = engine.call("heartbeat", namespace="default", event=ids[0], worker="w1")
    assert (other.state, other.lease_expires_at) == ("lost", None)


def test_a_lease_that_is_locked_tells_it_all_the_same(engine: Engine, db: Database) -> None:
    lease, ids = claim(engine, 2)
    engine.call("cancel", namespace="default", event_id=ids[0])
    other = Engine(db)
    with other.connection.transaction():
        other.connection.execute("select from headrace.leases where id = %s for update", [lease])
        assert extend(engine, lease) == {lease: ("busy", {str(ids[0]): "CANCELLED"})}


def test_other_queues_are_told_nothing(engine: Engine, db: Database) -> None:
    engine.call("create_namespace", namespace="other")
    lease, ids = claim(engine, 2)
    engine.call("cancel", namespace="default", event_id=ids[0])
    assert extend(Engine(db, "other"), lease, namespace="other") == {lease: ("lost", None)}


class TestNotifying:
    @pytest.mark.parametrize("each", [False, True], ids=["shared", "own"])
    @pytest.mark.parametrize("action", ACTIONS)
    def test_the_node_that_has_it_is_notified_of_its_lease(
        self, engine: Engine, db: Database, action: str, each: bool
    ) -> None:
        ear, other = Ear(db), Ear(db, str(uuid4()))
        lease, ids = claim(engine, 2, each=each, instance=INSTANCE)
        for id in ids:  # the last one ends the lease
            engine.call(action, namespace="default", event_id=id)
        assert ear.heard() == [str(lease)] * 2
        assert other.heard() == []

    def test_ordinary_ends_notify_nobody(self, engine: Engine, db: Database) -> None:
        ear = Ear(db)
        for each in (False, True):
            engine.publish(*[{}] * 6)
            claims = engine.poll(max_events=6, each=each, instance=INSTANCE)
            engine.finish(claims[:2])
            engine.end("fail", claims[2])
            engine.end("release", claims[3])
            db.advance(seconds=61)
            engine.tick()
        assert ear.heard() == []
        assert db.sql("select * from headrace.interruptions") == []

    def test_what_no_worker_has_notifies_nobody(self, engine: Engine, db: Database) -> None:
        ear = Ear(db)
        ids = engine.publish({}, {"delay": 60}, {"key": "k"})
        _, [claimed] = claim(engine, 1, worker="over HTTP")  # no node's: it notifies nobody
        for id in {*ids, claimed}:
            engine.call("cancel", namespace="default", event_id=id)
        assert ear.heard() == []
        rows = db.sql("select event from headrace.interruptions")
        assert rows == [(claimed,)]

    def test_a_moved_queue_tells_its_workers(self, engine: Engine, db: Database) -> None:
        ear = Ear(db)
        shared, ids = claim(engine, 2, instance=INSTANCE)
        own, others = claim(engine, 2, instance=INSTANCE, each=True)
        engine.call("pause", namespace="default", queue="main")
        engine.call("fence", namespace="default")
        assert sorted(ear.heard()) == sorted([str(shared), str(own)])
        assert extend(engine, shared, own) == {
            shared: ("lost", dict.fromkeys(map(str, ids), "RESET")),
            own: ("lost", dict.fromkeys(map(str, others), "RESET")),
        }

    def test_a_deleted_queue_tells_its_nodes_once(self, engine: Engine, db: Database) -> None:
        ear = Ear(db)
        engine.call("create_queue", namespace="default", queue="q")
        for _ in range(3):
            engine.publish({})
            engine.poll(queue="q", instance=INSTANCE)
        engine.call("delete_queue", namespace="default", queue="q", with_deliveries=True)
        assert ear.heard() == [""]

    def test_nothing_is_sent_where_that_is_switched_off(self, engine: Engine, db: Database) -> None:
        ear = Ear(db)
        lease, ids = claim(engine, 2, instance=INSTANCE)
        engine.connection.execute("set headrace.notify = off")
        engine.call("cancel", namespace="default", event_id=ids[0])
        assert ear.heard() == []
        assert extend(engine, lease)[lease] == ("held", {str(ids[0]): "CANCELLED"})

    def test_a_cancellation_that_is_rolled_back_tells_nothing(
        self, engine: Engine, db: Database
    ) -> None:
        ear = Ear(db)
        lease, ids = claim(engine, 2, instance=INSTANCE)
        with engine.connection.transaction(force_rollback=True):
            engine.call("cancel", namespace="default", event_id=ids[0])
        assert ear.heard() == []
        assert extend(engine, lease) == {lease: ("held", None)}

    def test_a_node_without_an_instance_is_refused(self, engine: Engine) -> None:
        with refused("QU001"):
            engine.call("hear_interruptions", instance=None)


def test_what_was_taken_is_forgotten_an_hour_after_its_lease(engine: Engine, db: Database) -> None:
    lease, ids = claim(engine, 2, lease="3 hours")
    engine.call("cancel", namespace="default", event_id=ids[0])
    db.advance(hours=2)
    db.sql("select headrace._forget()")
    assert extend(engine, lease)[lease][1] == {str(ids[0]): "CANCELLED"}
    engine.call("cancel", namespace="default", event_id=ids[1])
    db.sql("select headrace._forget()")
    assert len(extend(engine, lease)[lease][1] or ()) == 1  # the older one is forgotten
    db.advance(hours=2)
    before = contents(db)
    db.sql("select headrace._forget()")
    assert "interruptions" in differences(before, contents(db))
    assert extend(engine, lease) == {lease: ("lost", None)}
