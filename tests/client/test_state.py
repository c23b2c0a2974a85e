"""state, checkpoints, replay: what a queue is like, how far it has come, and its events once more."""

import logging
from datetime import timedelta
from typing import Any

import pytest

from headrace import Checkpoint, InvalidInput
from tests.client.clients import Client
from tests.database import Database
from tests.requirements import requirement


@requirement("QS-3", "QS-9")
def test_the_state_is_the_document(queue: Any) -> None:
    ids = queue.publish_many([("a", {"n": n}) for n in range(3)])
    state = queue.state(limit=2)
    assert [(event["eventId"], event["payload"]) for event in state["events"]] == [
        (str(ids[0]), {"n": 0}),
        (str(ids[1]), {"n": 1}),
    ]
    assert (state["id"], state["status"], state["checkpointId"]) == ("default/main", "active", None)
    assert (state.total, state.total_is_exact) == (3, True)
    assert [event["eventId"] for event in queue.state(after=ids[1])["events"]] == [str(ids[2])]
    with pytest.raises(InvalidInput):
        queue.state(limit=5000)


@pytest.mark.one_database("a checkpoint of several has a place on each")
@requirement("QS-6", "QS-10")
def test_a_checkpoint_is_taken_and_kept(queue: Any) -> None:
    first, second = queue.publish_many([("a", {})] * 2)
    queue.complete(queue.poll())
    taken = queue.checkpoint()
    assert (taken.checkpoint_id, taken.event_count, taken.lag) == (str(first), 1, 1)
    assert taken.reason == f"event {second} waits to be claimed"
    [kept] = queue.checkpoints()
    assert kept == Checkpoint(*[getattr(taken, name) for name in Checkpoint.__struct_fields__[:5]])
    assert queue.checkpoints(before=taken.created_at) == []
    queue.complete(queue.poll())
    low = queue.low_water()
    assert (low.checkpoint_id, low.event_count, low.lag, low.reason) == (str(second), 2, 0, None)
    queue.save_state()
    assert queue.recoveries() == []


@pytest.mark.one_database("a checkpoint of several has a place on each")
@requirement("QS-12")
def test_events_are_read_again_from_a_checkpoint_or_a_time(
    queue: Any, client: Client, db: Database
) -> None:
    ids = queue.publish_many([("a", {"n": n}) for n in range(4)])
    queue.complete(queue.poll(max_events=2))
    checkpoint = queue.checkpoint()
    told = list(queue.replay(from_checkpoint=checkpoint))
    assert [event.id for event in told] == ids[2:]
    assert (told[0].payload, told[0].status, told[0].title) == ({"n": 2}, None, "a")
    assert [event.id for event in queue.replay(from_checkpoint=str(ids[0]))] == ids[1:]
    assert [event.id for event in queue.replay(from_checkpoint=ids[2])] == ids[3:]
    db.advance(minutes=1)
    late = queue.publish("b.c", key="k", max_retries=7, priority=2)
    since = late.created_at - timedelta(seconds=30)
    [again] = queue.replay(since=since)
    assert (again.id, again.key, again.max_retries, again.priority) == (late.id, "k", 7, 2)
    assert again.created_at == again.updated_at == late.created_at
    assert [event.id for event in queue.replay(types=["b.*"])] == [late.id]
    assert len(list(queue.replay())) == 5


def test_much_is_read_page_by_page(queue: Any) -> None:
    ids = queue.publish_many([("a", n) for n in range(1200)])
    assert [event.id for event in queue.replay()] == ids


def test_who_waits_for_another_transaction_says_so(
    queue: Any, db: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.engine.state.PATIENCE", 0.05)
    late = db.connect(autocommit=False)
    publish = "select unnest(ids) from headrace.publish('default', '{}')"
    [(early,)] = late.execute(publish).fetchall()
    later = queue.publish("a")

    class Ending(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "a replay waits" in record.getMessage():
                late.commit()

    handler = Ending()
    logging.getLogger("headrace").addHandler(handler)
    try:
        assert [event.id for event in queue.replay()] == [early, later.id]
    finally:
        logging.getLogger("headrace").removeHandler(handler)
    assert f"process {late.info.backend_pid} " in caplog.text


def test_what_makes_no_sense_is_refused_at_once(queue: Any, db: Database) -> None:
    now = queue.publish("a").created_at
    for wrong in (
        {"from_checkpoint": 1, "since": now},
        {"from_checkpoint": "x"},
        {"from_checkpoint": -1},
        {"from_checkpoint": 2**63},
        {"since": now.replace(tzinfo=None)},
        {"types": "a"},
    ):
        with pytest.raises(InvalidInput):
            queue.replay(**wrong)
