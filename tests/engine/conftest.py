"""What tests of the engine have in common."""

from collections.abc import Iterator

import pytest

from tests.database import Database


@pytest.fixture
def patient(db: Database) -> Iterator[None]:
    """For those who wait on purpose: a test that is held up does not make them give up."""
    _wait_at_most(db, "60s")
    yield
    _wait_at_most(db, "500ms")  # the database may be the next test's


def _wait_at_most(db: Database, time: str) -> None:
    for function in ("_take_one", "erase", "_revive", "rerun"):
        db.sql(f"alter function headrace.{function} set lock_timeout = '{time}'")
