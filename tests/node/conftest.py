import pytest

from headrace.node import stop
from tests.database import PATIENCE


@pytest.fixture(autouse=True)
def _time_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that stops has less than a second to tell of what it hands back; a busy machine takes longer."""
    monkeypatch.setattr(stop, "TELLING", PATIENCE)
