"""An event that kills its worker is found and put away; those it was claimed with live."""

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from psycopg.types.json import Jsonb

from tests.database import Database
from tests.requirements import requirement

PROGRAM = Path(__file__).with_name("consumer.py")
NEIGHBOURS = 500


class Start(NamedTuple):
    event: int
    attempt: int
    crashes: int
    size: int


def publish(db: Database, policies: list[int]) -> tuple[dict[int, int], set[int]]:
    """A poison for each max_retries, spread among the others; its ids with that, and theirs."""
    events: list[dict[str, object]] = [{"payload": {}} for _ in range(NEIGHBOURS)]
    places = {(n + 1) * NEIGHBOURS // (len(policies) + 1): p for n, p in enumerate(policies)}
    for place, max_retries in places.items():
        events.insert(place, {"payload": {"poison": True}, "max_retries": max_retries})
    [(ids,)] = db.sql("select ids from headrace.publish('default', %s)", [Jsonb(events)])
    poison = {ids[place]: max_retries for place, max_retries in places.items()}
    return poison, set(ids) - poison.keys()


def supervise(db: Database, notes: Path, *, each: bool, most: int) -> list[Start]:
    """Run workers one after another, as a supervisor does, until the queue is empty."""
    arguments = json.dumps([db.dsn, str(notes), 100, each])
    deaths = 0
    while db.sql("select 1 from headrace.deliveries limit 1"):
        worker = subprocess.run([sys.executable, PROGRAM, arguments], timeout=60, check=False)
        if worker.returncode != 0:
            assert worker.returncode == -signal.SIGKILL
            deaths += 1
            assert deaths <= most, "too many workers died"
        db.advance(seconds=61)
    return [Start(*json.loads(line)) for line in notes.read_text().splitlines()]


LONG = pytest.mark.long


@requirement("G4", "G9", "EQ-5", "EQ-18", "EB-4", "EB-14")
@pytest.mark.parametrize(
    ("policies", "each"),
    [
        ([1], False),
        ([0, 1], True),
        pytest.param([3], False, marks=pytest.mark.rest),
        pytest.param([0], False, marks=LONG),
        pytest.param([3], True, marks=LONG),
        pytest.param([0, 1, 3, 3], False, marks=LONG),
    ],
)
def test_poison_is_dead_lettered_and_its_neighbours_are_not_charged(
    db: Database, tmp_path: Path, policies: list[int], each: bool
) -> None:
    poison, others = publish(db, policies)
    limits = {event: max(1, max_retries) for event, max_retries in poison.items()}
    most = sum(limit + 1 for limit in limits.values())
    starts = supervise(db, tmp_path / "starts", each=each, most=most)

    times = Counter(start.event for start in starts)
    assert {event: times[event] for event in poison if times[event] > limits[event] + 1} == {}
    dead = db.sql("select event, crashes, failures, status, reason from headrace.dead_letters")
    reason = "Its workers crashed or lost their leases"
    assert {row[0]: row[1:] for row in dead} == {
        event: (limit, 0, "FAILED", reason) for event, limit in limits.items()
    }

    completed = db.sql(
        "select m.event from headrace.outcomes o cross join lateral unnest(o.events) as m(event)"
        " where o.action = 'COMPLETED'"
    )
    assert sorted(event for (event,) in completed) == sorted(others)
    assert [start for start in starts if start.event in others and start.crashes > 0] == []
    # Whoever was claimed with a poison comes back alone, so that it shares no further death.
    assert [start for start in starts if start.attempt > 1 and start.size > 1] == []
    assert {event: place for event, place in db.placement().items() if len(place) != 1} == {}
