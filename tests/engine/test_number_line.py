"""Several databases can share the number line: each draws its own numbers (docs/scaling.md)."""

import pytest

from headrace.install.migrate import migrate
from tests.database import Database
from tests.requirements import requirement


@requirement("API-18")
@pytest.mark.parametrize("stride", [4, 64])
def test_a_database_may_draw_every_nth_number(empty_db: Database, stride: int) -> None:
    db = empty_db
    migrate(db.connect(), stride=stride, shard=2)
    queue = db.queue()
    ids = queue.publish_many([("order.created", number) for number in range(500)])
    assert {id % stride for id in ids} == {2}
    assert ids == sorted(ids)
    queue.cancel(ids[200])  # one of a pack
    told: dict[int, int] = {}
    while claimed := queue.poll(max_events=300):
        told |= {one.id: one.payload for one in claimed}
        queue.complete(claimed)
    assert told == {id: number for number, id in enumerate(ids) if number != 200}
    entries = queue.log_since(limit=1000, actions=["COMPLETED", "CANCELLED"]).entries
    assert {entry.event_id: entry.action for entry in entries} == {
        id: "CANCELLED" if id == ids[200] else "COMPLETED" for id in ids
    }


@pytest.mark.parametrize("back_to", ["2", "2, false", "6", "7"])
def test_a_repaired_sequence_still_draws_every_nth_number(empty_db: Database, back_to: str) -> None:
    db = empty_db
    migrate(db.connect(), stride=4, shard=2)
    queue = db.queue()
    ids = queue.publish_many([("order.created", number) for number in range(10)])
    db.sql(f"select setval('headrace.ids', {back_to})")
    assert db.sql("select headrace.repair_ids()") == [(ids[-1],)]
    assert queue.publish("order.created").id == ids[-1] + 4
