"""headrace doctor: what it says to people, what to programs, and its exit code."""

from pathlib import Path

import pytest

from headrace.cli.program import run
from headrace.doctor import CHECKS
from tests.cli.running import CommandLine
from tests.database import Database
from tests.folders import short_folder

PAGE = Path(__file__).parents[2] / "docs" / "doctor.md"


def test_what_is_found_is_shown_with_what_mends_it(cli: CommandLine, db: Database) -> None:
    db.sql(f"alter database {db.name} set synchronous_commit = off")
    said = cli.tried("doctor")
    assert said.code == 1
    assert "✗ synchronous_commit" in said.out
    assert f"→ alter database {db.name} set synchronous_commit = on" in said.out
    assert "✓ encoding" in said.out
    assert f"in {len(CHECKS)} checks." in said.out


def test_programs_get_a_line_a_finding(cli: CommandLine) -> None:
    said = cli.tried("doctor", "--json")
    assert said.code == 1  # the tests' server is quick, and not safe
    states = {one["check"]: one["state"] for one in said.records}
    assert list(states) == [check.name for check in CHECKS]
    assert {name for name, state in states.items() if state != "fine"} == {
        "fsync",
        "full_page_writes",
    }


@pytest.mark.long
def test_a_database_that_is_well_has_nothing_to_mend(capsys: pytest.CaptureFixture[str]) -> None:
    """On a server as anybody starts it, with everything on."""
    with short_folder() as folder:
        for command in (["migrate"], ["doctor"]):
            with pytest.raises(SystemExit) as ended:
                run([*command, "--data", str(folder / "data")])
            assert ended.value.code == 0, capsys.readouterr().out
    assert f"No problems in {len(CHECKS)} checks." in capsys.readouterr().out


def test_a_database_that_cannot_be_reached_has_an_exit_code_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["doctor", "--dsn", "host=127.0.0.1 port=1 connect_timeout=1"])
    assert ended.value.code == 3


def test_every_check_is_documented() -> None:
    rows = [line.split("|")[1].strip() for line in PAGE.read_text().splitlines() if "| `" in line]
    assert [row.strip("`") for row in rows if row.startswith("`")] == [
        check.name for check in CHECKS
    ]
