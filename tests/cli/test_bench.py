import copy
import signal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from headrace.cli.bench import measure, place
from headrace.cli.program import run
from headrace.embedded import EmbeddedPostgres
from tests.cli.running import CommandLine
from tests.database import Database

SMALL = ("--events", "1000", "--seconds", "20", "--connections", "2")


def databases(db: Database) -> list[str]:
    found = db.sql("select datname from pg_database where datname like 'headrace_bench%%'", [])
    return [name for (name,) in found]


def test_a_measurement_has_figures_and_leaves_no_database(db: Database, cli: CommandLine) -> None:
    *published, drained, picked_up = cli("bench", *SMALL, "--json").records
    assert [one["events"] for one in published] == [1000, 100, 100]
    assert drained["events"] == 1200
    assert drained["what"] == "drain by a node"
    for one in (*published, drained):
        assert one["rate"] > 0
        assert one["wal_bytes"] > 0
    for one in (*published, picked_up):
        assert 0 <= one["p50_ms"] <= one["p95_ms"]
    version = db.sql("select current_setting('server_version')")[0][0]
    assert {one["postgresql"].split()[0] for one in (*published, drained)} == {version.split()[0]}
    assert databases(db) == []
    assert db.queue().stats().published == 0


def test_who_may_not_create_a_database_measures_in_a_namespace_that_is_removed(
    db: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"{db.name}_tester"
    db.sql(f"create role {name} login in role headrace_admin, headrace_worker, headrace_publisher")
    other = copy.copy(db)
    other.dsn = make_conninfo(db.dsn, user=name)
    cli = CommandLine(other, capsys)
    try:
        refused = cli.tried("bench", *SMALL)
        assert refused.code == 1
        assert f"{name} may not: grant it" in refused.err
        assert "--here" in refused.err
        assert databases(db) == []
        found = cli("bench", *SMALL, "--here", "--json").records
        assert found[0]["events"] == 1000
        assert [one.name for one in db.queue().namespaces()] == ["default"]
    finally:
        db.sql(f"drop role {name}")


@pytest.mark.rest
def test_no_measurement_lasts_longer_than_it_may(cli: CommandLine) -> None:
    small = ("--events", "1000000", "--seconds", "0.2", "--connections", "2")
    found = cli("bench", *small, "--json").records
    assert all(one["events"] < 1_000_000 for one in found)
    assert len(found) == 5


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("inside", ["database", "namespace"])
def test_who_ends_it_while_it_is_set_up_leaves_nothing(
    db: Database,
    cli: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    inside: str,
) -> None:
    def set_up_and_be_ended(*arguments: Any, **options: Any) -> Any:
        done = real(*arguments, **options)
        signal.raise_signal(number)
        return done

    what = (place, "migrate") if inside == "database" else (measure, "connect")
    real = getattr(*what)
    monkeypatch.setattr(*what, set_up_and_be_ended)
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        ended = cli.tried("bench", *SMALL, *(["--here"] if inside == "namespace" else []))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (ended.code, "is removed" in ended.err) == (128 + number, True)
    assert databases(db) == []
    assert [one.name for one in db.queue().namespaces()] == ["default"]


@pytest.mark.rest
def test_an_installation_that_has_just_begun_is_left_without_roles_and_databases(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The roles are a whole server's, so dropping the database would leave them."""
    with EmbeddedPostgres(tmp_path / "data") as postgres:
        with pytest.raises(SystemExit) as ended:
            run(["bench", *SMALL, "--data", str(tmp_path / "data")])
        assert ended.value.code == 0, capsys.readouterr().err
        assert "drain by a node" in capsys.readouterr().out
        with psycopg.connect(postgres.dsn) as connection:
            roles = connection.execute(
                "select count(*) from pg_roles where rolname like 'headrace%'"
            ).fetchone()
            names = connection.execute("select datname from pg_database").fetchall()
    assert roles == (0,)
    assert sorted(names) == [("headrace",), ("postgres",), ("template0",), ("template1",)]
