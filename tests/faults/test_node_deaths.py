"""Nodes that die, freeze or block: their events are handled elsewhere in time, and what comes too late is refused."""

import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.database import Database
from tests.faults.crew import (
    BUSY,
    Crew,
    actions,
    completed,
    crew_of,
    eventually,
    open_deliveries,
    stalled,
)
from tests.requirements import requirement

LEASE, TICK, IDLE = 2.0, 1.0, 0.5

kinds = pytest.mark.parametrize("kind", ["async", pytest.param("plain", marks=pytest.mark.rest)])


@pytest.fixture
def db(db: Database) -> Database:
    db.sql("create table effects (event bigint)")  # without a constraint: two rows are two rows
    return db


@pytest.fixture
def crew(db: Database, tmp_path: Path) -> Iterator[Crew]:
    with crew_of(db, tmp_path, lease=LEASE, idle=IDLE) as crew:
        yield crew


@kinds
@requirement("G4", "G9", "EQ-8", "EB-7")
def test_what_a_killed_node_had_claimed_is_handled_elsewhere_in_time(
    db: Database, crew: Crew, kind: str
) -> None:
    doomed, _heir = crew.start_some(2, kind, concurrency=5)
    ids = db.queue().publish_many([("sleep", 0.02)] * 400)
    eventually(lambda: len(doomed.starts) > 20)
    doomed.kill()
    killed_at, before = time.time(), stalled()

    eventually(lambda: completed(db, ids))
    again = [start for start in crew.starts if start.attempt > 1]
    assert again, "the kill came when it had nothing: this run has shown nothing"
    late = max(start.at for start in again) - killed_at
    assert late < LEASE + TICK + IDLE + BUSY + (stalled() - before)
    assert {start.event for start in again if start.crashes} == set(), "neighbours were charged"


@kinds
@requirement("G5", "G6", "G10")
def test_what_a_frozen_node_comes_back_with_is_refused(db: Database, crew: Crew, kind: str) -> None:
    queue = db.queue()
    [frozen] = crew.start_some(1, kind)
    ids = queue.publish_many([("effect", 1)] * 3 + [("sleep", 1)] * 3)
    eventually(lambda: len(frozen.starts) == 6)
    frozen.signal(signal.SIGSTOP)
    crew.start(kind, lease=60)
    eventually(lambda: completed(db, ids))
    frozen.signal(signal.SIGCONT)
    crew.stop()

    assert completed(db, ids)
    trail = ["EMITTED", "PICKED", "ABANDONED", "PICKED", "COMPLETED"]
    assert [actions(queue, id) for id in ids] == [trail] * 6
    assert sorted(db.sql("select event from effects")) == [(id,) for id in ids[:3]]
    assert any("lost" in line for line in frozen.said)


@requirement("G9", "PG-24")
def test_a_handler_that_blocks_its_loop_for_two_leases_keeps_its_event_and_is_named(
    db: Database, crew: Crew
) -> None:
    crew.start_some(2, lease=2)
    id = db.queue().publish("block", 4).id
    eventually(lambda: completed(db, [id]) or len(crew.starts) > 1)
    assert [(start.event, start.attempt) for start in crew.starts] == [(id, 1)]
    worker = next(worker for worker in crew.all if worker.starts)
    warnings = [line for line in worker.said if "block_the_loop" in line]
    assert len(warnings) == 1


@pytest.mark.parametrize("max_retries", [1, pytest.param(3, marks=pytest.mark.long)])
@requirement("G9", "EQ-18", "EB-14")
def test_an_event_that_kills_its_process_is_put_away_and_its_neighbours_live(
    db: Database, crew: Crew, max_retries: int
) -> None:
    queue = db.queue()
    before = queue.publish_many([("sleep", 0)] * 30)
    deadly = queue.publish("die", max_retries=max_retries).id
    after = queue.publish_many([("sleep", 0)] * 30)
    while open_deliveries(db):  # as a supervisor does
        worker = crew.start(concurrency=10)
        eventually(lambda worker=worker: not worker.is_alive() or not open_deliveries(db))
        db.advance(seconds=LEASE + 1)
    crew.stop()

    starts = Counter(start.event for start in crew.starts)
    assert starts[deadly] == max_retries + 1
    letter = queue.dead_letter(deadly)
    assert (letter.crashes, letter.retry_count) == (max_retries, 0)
    assert letter.reason == "Its workers crashed or lost their leases"
    neighbours = {id for id in (*before, *after) if queue.event(id).status != "COMPLETED"}
    assert neighbours == set()
    assert [start for start in crew.starts if start.event != deadly and start.crashes] == []
