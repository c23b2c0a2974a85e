"""A node that is killed and started again takes over what it had, long before its leases run out."""

from collections import Counter
from pathlib import Path

import pytest

from tests.database import Database
from tests.faults.crew import BUSY, PATIENCE, actions, completed, crew_of, eventually, stalled
from tests.requirements import requirement

LEASE = 600.0  # much longer than anything here takes


@pytest.mark.parametrize("leased", [25, pytest.param(500, marks=pytest.mark.long)])
@requirement("QS-1", "QS-11", "QS-12", "QS-13", "G4")
def test_a_node_that_is_started_again_goes_on_where_it_was_killed(
    db: Database, tmp_path: Path, leased: int
) -> None:
    queue = db.queue()
    with crew_of(db, tmp_path, lease=LEASE, concurrency=leased, node_id="the-node") as crew:
        done = queue.publish_many([("sleep", 0)] * 20)
        first = crew.start()
        eventually(lambda: completed(db, done))
        left = queue.publish_many([("long at first", {})] * leased)
        eventually(lambda: len(first.starts) == 20 + leased)
        stats = queue.stats()
        assert stats.processing + stats.claimed_ahead == leased
        first.kill()

        before = stalled()
        second = crew.start()
        eventually(lambda: second.starts)
        [registered] = [one.started_at for one in queue.nodes()]
        late = min(start.at for start in second.starts) - registered.timestamp()
        assert late < 1 + BUSY + (stalled() - before)
        eventually(lambda: completed(db, done + left), PATIENCE + leased / 10)
        [record] = queue.recoveries()
        eventually(lambda: any("recovered" in line for line in second.said))

    assert (record.node_id, record.events_recovered, record.status) == ("the-node", leased, "completed")  # fmt: skip
    assert record.checkpoint_id in {None, *map(str, done)}
    # The kill came at once after the last start, and the end of the leases is still to come.
    starts = Counter(start.event for start in crew.starts)
    assert {starts[id] for id in done} == {1}, "what was finished has run again"
    assert {starts[id] for id in left} == {2}
    trail = ["EMITTED", "PICKED", "ABANDONED", "PICKED", "COMPLETED"]
    assert [actions(queue, id) for id in left[:3]] == [trail] * 3
    assert {(start.attempt, start.crashes) for start in second.starts} == {(2, 0)}


@pytest.mark.long
@requirement("QS-2", "G5")
def test_two_that_live_under_one_id_leave_each_other_alone(db: Database, tmp_path: Path) -> None:
    queue = db.queue()
    with crew_of(db, tmp_path, lease=LEASE, concurrency=5, node_id="the-node") as crew:
        first = crew.start()
        ids = queue.publish_many([("long at first", {})] * 5)
        eventually(lambda: len(first.starts) == 5)
        second = crew.start()
        other = queue.publish("sleep", 0).id
        eventually(lambda: [start.event for start in second.starts] == [other])
        assert queue.recoveries() == []
        assert {queue.event(id).attempts for id in ids} == {1}
        first.kill()
        third = crew.start()  # it takes over from the one that is dead, and only from that
        eventually(lambda: completed(db, [*ids, other]), PATIENCE)
        assert [record.events_recovered for record in queue.recoveries()] == [5]
        assert second.is_alive()
        assert third.is_alive()
