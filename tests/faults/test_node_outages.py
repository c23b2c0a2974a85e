"""PostgreSQL goes away under nodes at work, or throws them out again and again: every event comes to one end."""

import random
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.database import Database
from tests.faults.crashable import Crashable
from tests.faults.crashable import crashable as crashable  # the fixtures
from tests.faults.crashable import durable as durable
from tests.faults.crew import Crew, Worker, completed, crew_of, end_in_time, ends, eventually
from tests.requirements import requirement

REST, LONG = pytest.mark.rest, pytest.mark.long
GRACE = 2

# How a node says that PostgreSQL is away, and that it is back.
AWAY, BACK = "trying again, because", "it works again"
SAID = ["ticks fail", "lost", AWAY, BACK]

STOPS = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT, "killed": signal.SIGKILL}
THROW_OUT = """
select pg_terminate_backend(pid) from pg_stat_activity
where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()
"""


def crew_for(db: Database, folder: Path) -> Iterator[Crew]:
    """One of each kind, with leases that run out while the test goes on: nobody hears of some claims."""
    db.sql("create table effects (event bigint)")
    with crew_of(db, folder, lease=3, concurrency=10, grace=GRACE, telling=None) as crew:
        crew.start_some(1, "async")
        crew.start_some(1, "plain")
        yield crew


@pytest.fixture
def crew(crashable: Crashable, tmp_path: Path) -> Iterator[Crew]:
    yield from crew_for(crashable.db, tmp_path)


@pytest.fixture
def crew_thrown_out(db: Database, tmp_path: Path) -> Iterator[Crew]:
    yield from crew_for(db, tmp_path)


def publish(db: Database, count: int) -> Sequence[int]:
    """Half of them have an effect. What a lost connection charges is not to be their end."""
    types = ["sleep", "effect"] * (count // 2)
    return db.queue().publish_many(
        [{"type": type, "payload": 0.005, "max_retries": 1000} for type in types]
    )


def check(db: Database, crew: Crew, ids: Sequence[int]) -> None:
    """All came to one end, with one effect; and who had said that something is wrong says that it is well again."""
    eventually(lambda: completed(db, ids))
    assert sorted(db.sql("select event from effects")) == [(id,) for id in ids[1::2]]
    for worker in crew.all:
        eventually(lambda worker=worker: not is_troubled(worker))
        assert [line for line in worker.said if not any(part in line for part in SAID)] == []
    crew.stop()


def is_troubled(worker: Worker) -> bool:
    """According to what it said last; it says each in its turn."""
    lines = [line for line in worker.said if AWAY in line or BACK in line]
    assert [AWAY in line for line in lines[::2]] == [True] * len(lines[::2]), lines
    assert [BACK in line for line in lines[1::2]] == [True] * len(lines[1::2]), lines
    return len(lines) % 2 == 1


@pytest.mark.parametrize(
    "stops",
    [
        pytest.param(["immediate"], id="immediate"),
        pytest.param(["killed"], id="killed", marks=REST),
        pytest.param(["fast"], id="fast", marks=REST),
        pytest.param(["killed", "fast", "immediate"] * 3, id="again and again", marks=LONG),
    ],
)
@requirement("G1", "G4", "G7", "G10", "PG-25")
def test_nodes_go_on_after_the_server_was_away(
    crashable: Crashable, crew: Crew, stops: list[str]
) -> None:
    ids: list[int] = []
    for stop in stops:
        before = len(crew.starts)
        ids += publish(crashable.db, 2000)
        eventually(lambda before=before: len(crew.starts) > before + 200)
        crashable.stop(STOPS[stop])
        crashable.revive()
        crew.db = crashable.db
    assert len(ends(crashable.db)) < len(ids), "all was done: this run has shown nothing"
    check(crashable.db, crew, ids)
    failed = "select count(*) from headrace.outcomes where action = 'FAILED'"
    assert crashable.db.sql(failed) == [(0,)], "it was held against somebody"


@pytest.mark.parametrize("duration", [3, pytest.param(30, marks=LONG)])
@requirement("G4", "G7", "G10", "G19", "PG-25")
def test_nodes_that_are_thrown_out_again_and_again_come_to_every_end(
    db: Database, crew_thrown_out: Crew, duration: int
) -> None:
    chance = random.Random(seed := random.randrange(2**32))
    print(f"seed {seed}")
    ids: list[int] = []
    thrown_out = 0
    until = time.monotonic() + duration
    while time.monotonic() < until or thrown_out <= 5 * duration:
        thrown_out += len(db.sql(THROW_OUT))
        ids += publish(db, 50)
        time.sleep(chance.uniform(0, 0.4))
    check(db, crew_thrown_out, ids)


def stop_in_time(crew: Crew) -> None:
    def ask() -> None:
        for worker in crew.all:
            worker.signal(signal.SIGTERM)

    end_in_time(crew.all, GRACE + 1, ask)


@REST
@requirement("G4", "G10", "G14")
def test_nodes_that_are_told_to_stop_while_the_server_is_away_do_so_in_time(
    crashable: Crashable, crew: Crew
) -> None:
    ids = publish(crashable.db, 2000)
    eventually(lambda: len(crew.starts) > 200)
    crashable.stop(signal.SIGQUIT)
    stop_in_time(crew)
    crashable.revive()
    crew.db = crashable.db
    assert len(ends(crashable.db)) < len(ids), "all was done: this run has shown nothing"
    crew.start_some(1)
    eventually(lambda: completed(crashable.db, ids))
    assert sorted(crashable.db.sql("select event from effects")) == [(id,) for id in ids[1::2]]


@requirement("G4", "G10", "G14")
def test_nodes_that_are_told_to_stop_while_the_server_does_not_answer_do_so_in_time(
    crashable: Crashable, crew: Crew
) -> None:
    ids = publish(crashable.db, 1200)
    eventually(lambda: len(crew.starts) > 100)
    with crashable.frozen():
        stop_in_time(crew)
    assert len(ends(crashable.db)) < len(ids), "all was done: this run has shown nothing"
    crew.start_some(1)
    eventually(lambda: completed(crashable.db, ids))
    assert sorted(crashable.db.sql("select event from effects")) == [(id,) for id in ids[1::2]]
