"""Several databases can share the number line: each draws its own numbers (docs/scaling.md)."""

import pytest

from tests.database import Database
from tests.requirements import requirement


@requirement("API-18")
def test_a_database_may_draw_every_fourth_number(db: Database) -> None:
    db.sql("alter sequence headrace.ids increment by 4 restart with 2")
    queue = db.queue()
    ids = queue.publish_many([("order.created", number) for number in range(500)])
    assert {id % 4 for id in ids} == {2}
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


@pytest.mark.parametrize("back_to", ["2", "2, false", "6"])
def test_a_repaired_sequence_still_draws_every_fourth_number(db: Database, back_to: str) -> None:
    db.sql("alter sequence headrace.ids increment by 4 restart with 2")
    queue = db.queue()
    ids = queue.publish_many([("order.created", number) for number in range(10)])
    db.sql(f"select setval('headrace.ids', {back_to})")
    assert db.sql("select headrace.repair_ids()") == [(ids[-1],)]
    assert queue.publish("order.created").id == ids[-1] + 4
