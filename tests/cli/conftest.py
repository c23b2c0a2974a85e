import pytest

from tests.cli.running import CommandLine
from tests.database import Database


@pytest.fixture
def cli(db: Database, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(db, capsys)
