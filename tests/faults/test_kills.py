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


def weather(fleet: Fleet, fault: str, times: int, patience: float) -> None:
    """Let faults happen while the fleet works, that many times, and then let it finish."""
    deadline = time.monotonic() + patience
    due = time.monotonic()
    while times > 0 or not fleet.drained():
        fleet.check_alive()
        fleet.db.sql("select headrace.tick()")
        if times > 0 and time.monotonic() > due:
            fleet.kill_one() if fault == "kill" else fleet.cut_one()
            times -= 1
            due = time.monotonic() + fleet.random.uniform(0, 0.4)
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.02)


@requirement("G4", "G5", "G6", "G7", "G9", "G10", "EQ-1", "EQ-3", "EQ-5", "EQ-9", "EB-2", "EB-4")
@pytest.mark.parametrize("fault", ["kill", "cut"])
@pytest.mark.parametrize(
    ("batches", "times"),
    [
        pytest.param(90, 10, id="short"),
        pytest.param(1600, 160, id="long", marks=(pytest.mark.long, pytest.mark.timeout(400))),
    ],
)
def test_every_event_ends_once_whoever_dies(
    db: Database, notes: Path, fault: str, batches: int, times: int
) -> None:
    fleet = Fleet(db, notes, size=8, batches=batches)
    try:
        weather(fleet, fault, times, patience=60 + batches / 5)
        fleet.stop()
    finally:
        fleet.discard()
    ledger = Ledger(db, Notes(notes))
    print(ledger)
    ledger.check()
    assert ledger.abandoned > 0, "no claim was cut short: this run has shown nothing"
