"""Limits of a queue hold for readers through pgmq's functions, too: whatever the door, a claim takes a slot and a start."""

from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.database import Database
from tests.pgmq.test_functions import Pgmq
from tests.requirements import requirement

AT_ONCE = {"scope": "queue", "at_once": 2}
RATE = {"scope": "queue", "rate": 2, "per": 60, "burst": 2}


@pytest.fixture
def pgmq(db: Database) -> Pgmq:
    pgmq = Pgmq(db)
    pgmq("create", "jobs")
    pgmq.send("jobs", *[{"n": n} for n in range(9)])
    return pgmq


def limit(db: Database, *limits: dict[str, Any]) -> None:
    settings = Jsonb({"limits": list(limits)})
    db.sql("select headrace.change_queue('pgmq', 'jobs', %s)", [settings])


def in_progress(db: Database) -> int:
    rows = db.sql("select in_progress from headrace.limits('pgmq', 'jobs')")
    return sum(number or 0 for (number,) in rows)


READS: dict[str, tuple[Any, ...]] = {
    "plain": ("read", 30, 5),
    "conditional": ("read", 30, 5, Jsonb({})),
    "with a poll": ("read_with_poll", 30, 5, 1, 100),
}


@pytest.mark.parametrize("how", READS)
@requirement("G25")
def test_a_read_gets_what_has_room(db: Database, pgmq: Pgmq, how: str) -> None:
    function, *rest = READS[how]
    limit(db, AT_ONCE)
    first, second = pgmq(function, "jobs", *rest)
    assert in_progress(db) == 2
    assert pgmq("read", "jobs", 30, 5) == []
    pgmq("delete", "jobs", first[0])
    assert len(pgmq(function, "jobs", *rest)) == 1
    pgmq("archive", "jobs", second[0])
    assert len(pgmq(function, "jobs", *rest)) == 1


def test_a_timeout_that_is_over_gives_its_slot_back(db: Database, pgmq: Pgmq) -> None:
    limit(db, AT_ONCE)
    assert len(pgmq.read("jobs", 5, vt=30)) == 2
    db.advance(seconds=31)
    assert len(pgmq.read("jobs", 5)) == 2


def test_set_vt_keeps_a_slot_or_gives_it_back(db: Database, pgmq: Pgmq) -> None:
    limit(db, AT_ONCE)
    first, _ = pgmq.read("jobs", 5, vt=30)
    pgmq("set_vt", "jobs", first[0], 90)
    db.advance(seconds=60)
    assert len(pgmq.read("jobs", 5)) == 1  # of the second
    pgmq("set_vt", "jobs", first[0], 0)
    assert len(pgmq.read("jobs", 5)) == 1


@pytest.mark.parametrize("how", READS)
def test_a_read_without_a_timeout_keeps_no_slot_and_counts_as_a_start(
    db: Database, pgmq: Pgmq, how: str
) -> None:
    function, _, *rest = READS[how]
    limit(db, {**RATE, "at_once": 3})
    assert len(pgmq(function, "jobs", 0, *rest)) == 3
    assert in_progress(db) == 0
    assert pgmq("read", "jobs", 0, 5) == []
    db.advance(seconds=60)
    assert len(pgmq("read", "jobs", 30, 5)) == 2


def test_what_is_popped_counts_as_a_start_and_keeps_no_slot(db: Database, pgmq: Pgmq) -> None:
    limit(db, AT_ONCE, {**RATE, "scope": "type", "match": "*"})
    assert [len(pgmq("pop", "jobs")) for _ in range(5)] == [1, 1, 1, 0, 0]
    assert in_progress(db) == 0
    db.advance(seconds=30)
    assert len(pgmq("pop", "jobs")) == 1
