"""Workers die and sessions are cut at any moment, and nothing is lost, doubled or ended twice."""

import time
from pathlib import Path

import pytest

from tests.database import Database
from tests.faults.fleet import Fleet
from tests.faults.ledger import Ledger, Notes
from tests.requirements import requirement


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


def weather(fleet: Fleet, faults: list[str], patience: float) -> None:
    """Let these faults happen while the fleet works, and then let it finish."""
    deadline = time.monotonic() + patience
    due = time.monotonic()
    while faults or not fleet.drained():
        fleet.check_alive()
        fleet.db.sql("select headrace.tick()")
        if faults and time.monotonic() > due:
            fleet.kill_one() if faults.pop() == "kill" else fleet.cut_one()
            due = time.monotonic() + fleet.random.uniform(0, 0.4)
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.02)


LONG = (pytest.mark.long, pytest.mark.matrix, pytest.mark.timeout(400))


@requirement("G4", "G5", "G6", "G7", "G9", "G10", "EQ-1", "EQ-3", "EQ-5", "EQ-9", "EB-2", "EB-4")
@pytest.mark.parametrize(
    ("batches", "faults"),
    [
        pytest.param(90, ["kill", "cut"] * 8, id="a few deaths"),
        pytest.param(1600, ["kill"] * 160, id="many kills", marks=LONG),
        pytest.param(1600, ["cut"] * 300, id="many cuts", marks=LONG),
    ],
)
def test_every_event_ends_once_whoever_dies(
    db: Database, notes: Path, batches: int, faults: list[str]
) -> None:
    fleet = Fleet(db, notes, size=8, batches=batches)
    try:
        weather(fleet, list(faults), patience=60 + batches / 6)
        fleet.stop()
    finally:
        fleet.discard()
    ledger = Ledger(db, Notes(notes))
    print(ledger)
    ledger.check()
    assert ledger.abandoned > 0, "no claim was cut short: this run has shown nothing"
