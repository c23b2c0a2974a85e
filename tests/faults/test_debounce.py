"""Debounce while many publish: as seldom as it is said, as often as it is said, and the last one runs last."""

import pytest

from tests.database import Database
from tests.laboratory.debounce import measure
from tests.requirements import requirement


@requirement("G7", "G26")
@pytest.mark.timeout(240)
def test_a_busy_key_starts_within_its_bounds_and_the_last_payload_runs_last(db: Database) -> None:
    accounts = measure(db.dsn, publishers=6, seconds=6, settle=0.5, at_latest=1.5, pause=0.01)
    assert accounts.wrong == {}
    assert accounts.figures["started"] >= 3
    assert accounts.figures["superseded"] > accounts.figures["started"]
