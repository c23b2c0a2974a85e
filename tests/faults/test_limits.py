"""Limits hold whoever is killed, and whenever they are changed."""

from pathlib import Path

import pytest

from tests.database import Database
from tests.laboratory.limits import measure
from tests.requirements import requirement


@pytest.mark.timeout(240)
@requirement("G25")
def test_limits_hold_though_workers_are_killed_and_limits_are_changed(
    db: Database, tmp_path: Path
) -> None:
    accounts = measure(db.dsn, tmp_path, 8, processes=4, tenants=8, backlog=2000, seconds=8)
    assert accounts.wrong == {}
