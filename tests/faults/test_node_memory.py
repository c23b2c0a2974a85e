"""A node keeps nothing of what it has done."""

from pathlib import Path

import pytest

from tests.database import Database
from tests.faults.crew import crew_of, eventually
from tests.requirements import requirement

BATCH = 10_000
MORE = 10 * 2**20  # bytes


@pytest.mark.parametrize(
    ("some", "many"),
    [
        (10_000, 30_000),
        pytest.param(100_000, 1_000_000, marks=[pytest.mark.long, pytest.mark.timeout(900)]),
    ],
)
@requirement("G15")
def test_a_node_has_no_more_memory_after_many_events_than_after_some(
    db: Database, tmp_path: Path, some: int, many: int
) -> None:
    queue = db.queue()
    published = 0
    with crew_of(db, tmp_path, lease=60) as crew:
        [worker] = crew.start_some(1)
        resident = {}
        for goal in (some, many):
            while published < goal:
                published += len(queue.publish_many([("nothing", None)] * BATCH))
            eventually(
                lambda goal=goal: queue.stats(3600).completed == goal, patience=60 + many / 1000
            )
            resident[goal] = worker.resident()
        crew.stop()
    print(resident)
    assert resident[many] <= resident[some] + MORE
