"""SIGTERM to nodes under load: nothing is lost, nothing is charged, and the process ends in time."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.database import Database
from tests.faults.crew import Crew, Worker, completed, crew_of, end_in_time, ends, eventually
from tests.requirements import requirement

REST = pytest.mark.rest


@pytest.fixture
def db(db: Database) -> Database:
    db.sql("create table effects (event bigint)")
    return db


@pytest.fixture
def crew(db: Database, tmp_path: Path) -> Iterator[Crew]:
    """With leases that no test outlives: what is handed back was handed back."""
    with crew_of(db, tmp_path, lease=600) as crew:
        yield crew


def terminate(worker: Worker, *, within: float, times: int = 1) -> None:
    def ask() -> None:
        for _ in range(times):
            worker.signal(signal.SIGTERM)
            eventually(lambda: not is_pending(worker))  # who is not heard yet is not heard twice

    end_in_time([worker], within, ask)


def is_pending(worker: Worker) -> bool:
    """Whether a signal waits to be delivered to the process."""
    lines = Path(f"/proc/{worker.pid}/status").read_text().splitlines()
    return any(int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd")))


def all_handed_back(db: Database, *, of: int) -> None:
    """What has not ended can be claimed by anybody, and has no more charged to it than when it came."""
    done = len(ends(db))
    waiting = db.sql("select lease, failures, crashes, suspect, due_at from headrace.deliveries")
    assert waiting == [(None, 0, 0, False, None)] * (of - done)
    assert db.sql("select count(*) from headrace.held") == [(0,)]


@pytest.mark.parametrize(
    ("kind", "type", "seconds", "count"),
    [
        ("async", "sleep", 0.05, 400),
        ("plain", "effect", 0.05, 400),
        pytest.param("plain", "sleep", 0.05, 400, marks=REST),
        pytest.param("async", "effect", 0.05, 400, marks=REST),
        pytest.param("async", "sleep", 0.01, 20_000, marks=pytest.mark.long),
    ],
)
@requirement("G14")
def test_a_node_that_is_told_to_stop_loses_and_charges_nothing(
    db: Database, crew: Crew, kind: str, type: str, seconds: float, count: int
) -> None:
    ids = db.queue().publish_many([(type, seconds)] * count)
    worker = crew.start(kind, concurrency=20, grace=5)
    eventually(lambda: len(worker.starts) >= min(100, count // 4))
    terminate(worker, within=5 + 1)
    assert len(ends(db)) < count, "it had done everything: this run has shown nothing"
    all_handed_back(db, of=count)

    crew.start(kind)
    eventually(lambda: completed(db, ids))
    starts = [(start.event, start.attempt) for start in crew.starts]
    assert sorted(event for event, _ in starts) == sorted(ids), "one was begun twice"
    if type == "effect":
        assert sorted(db.sql("select event from effects")) == [(id,) for id in ids]


@pytest.mark.parametrize(("type", "payload"), [("hang", None), ("sleep", 60)])
@requirement("G14")
def test_handlers_that_go_on_beyond_the_grace_time_are_left_and_their_events_handed_back(
    db: Database, crew: Crew, type: str, payload: object
) -> None:
    db.queue().publish_many([(type, payload)] * 3 + [("sleep", 0)] * 10)
    worker = crew.start(grace=0.5)
    eventually(lambda: len(worker.starts) == 13 and len(ends(db)) == 10)
    terminate(worker, within=0.5 + 1)
    all_handed_back(db, of=13)


@pytest.mark.parametrize("type", ["hang", "sleep"])
@requirement("G14")
def test_a_second_signal_ends_a_node_at_once(db: Database, crew: Crew, type: str) -> None:
    db.queue().publish_many([(type, 60)] * 3)
    worker = crew.start(grace=600)
    eventually(lambda: len(worker.starts) == 3)
    terminate(worker, within=1, times=2)
    all_handed_back(db, of=3)
