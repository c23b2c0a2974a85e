import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bench.peers import INSTALL, NOTE, OTHERS
from tests.database import Server

PROJECT = Path(__file__).parents[2]
CASES = [
    "bulk",
    "single",
    "one",
    "drain",
    "transactional",
    "limits",
    "limits-bulk",
    "backlog",
    "rare",
]
OF_PROCESSES = ["node", "nodes", "in-and-out", "plain", "transactional-node", "state"]
OVER_HTTP = ["http", "http-one", "http-work"]
NOT_OURS = ["graphile-worker", "pg-boss", "pgqueuer", "awa-pg", "chancy", "procrastinate", "pgq"]


def run_bench(*arguments: str, peers: Path = Path("/nowhere")) -> subprocess.CompletedProcess[str]:
    """What others have installed in environments of their own takes minutes, and is not ours to test."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "bench", *arguments],
        cwd=PROJECT,
        env={**os.environ, "HEADRACE_PEERS": str(peers)},
        capture_output=True,
        text=True,
        timeout=100,
    )


def bench(*arguments: str, peers: Path = Path("/nowhere")) -> str:
    done = run_bench(*arguments, peers=peers)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def broken_peer(folder: Path) -> Path:
    """Where a pgqueuer seems to be installed, which does not work."""
    (pgqueuer,) = [peer for peer in OTHERS if peer.name == "pgqueuer"]
    program = folder / pgqueuer.name / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho no such luck >&2\nexit 1\n")
    program.chmod(0o755)
    (folder / pgqueuer.name / NOTE).write_text(pgqueuer.note)
    return folder


@pytest.fixture(scope="module")
def run(server: Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """What a small run of everything prints, and its JSON."""
    path = tmp_path_factory.mktemp("bench") / "results.json"
    small = ["--rounds", "1", "--events", "400", "--full", "--backlog", "1000"]
    peers = broken_peer(path.parent / "peers")
    printed = bench(*small, *_only(CASES), "--dsn", server.dsn, "--json", str(path), peers=peers)
    return printed, json.loads(path.read_text(encoding="utf-8"))


def _only(cases: list[str]) -> list[str]:
    return [word for case in cases for word in ("--only", case)]


@pytest.mark.long  # every turn starts processes
@pytest.mark.parametrize("case", [*OF_PROCESSES, "snapshot", "pick-up", "memory"])
def test_nodes_are_measured_in_processes_of_their_own(
    server: Server, tmp_path: Path, case: str
) -> None:
    path = tmp_path / "results.json"
    small = ["--rounds", "1", "--events", "2000", "--backlog", "2000", "--only", case]
    bench(*small, "--dsn", server.dsn, "--json", str(path))
    results = json.loads(path.read_text(encoding="utf-8"))
    if case == "pick-up":
        assert results["pickup"]["node"]["p50"] > 0
        return
    if case == "memory":
        assert len(results["memory"]["mebibytes"]) == len(results["memory"]["events"]) == 10
        assert results["memory"]["events"][-1] == 2000
        return
    for contender in results["cases"][0]["contenders"]:
        assert contender["per_second"] > 0
        assert contender["client_cpu_us"] > 0


@pytest.mark.long  # servers are started
def test_requests_over_http_are_timed(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    small = ["--rounds", "1", "--events", "2000", *_only(OVER_HTTP)]
    printed = bench(*small, "--dsn", server.dsn, "--json", str(path))
    results = json.loads(path.read_text(encoding="utf-8"))
    assert [case["case"] for case in results["cases"]] == OVER_HTTP
    for case in results["cases"]:
        assert [contender["name"] for contender in case["contenders"]] == ["headrace", "floor"]
        for contender in case["contenders"]:
            assert 0 < contender["p50_ms"] <= contender["p99_ms"]
    [comparison] = results["cases"][0]["comparisons"]
    assert comparison["goal"] == 3
    assert "a request, ms" in printed


def test_every_case_is_measured_against_another_in_every_round(
    run: tuple[str, dict[str, Any]],
) -> None:
    _, results = run
    assert [case["case"] for case in results["cases"]] == CASES
    for case in results["cases"]:
        assert case["contenders"][0]["name"] == "headrace"
        assert len(case["contenders"]) >= 2
        for contender in case["contenders"]:
            assert contender["per_second"] > 0
            assert contender["wal_bytes"] > 0
            assert contender["client_cpu_us"] > 0
            assert len(contender["samples"]) >= 1
            assert all(sample["events"] == case["events"] for sample in contender["samples"])


def test_every_goal_has_a_ratio_and_a_verdict(run: tuple[str, dict[str, Any]]) -> None:
    _, results = run
    goals = {
        (case["case"], one["against"]): one["goal"]
        for case in results["cases"]
        for one in case["comparisons"]
        if one["goal"] is not None
    }
    assert {
        ("bulk", "floor"): 0.9,
        ("single", "floor"): 0.85,
        ("one", "publish"): 2,
        ("drain", "floor"): 0.8,
        ("transactional", "floor"): 0.8,
        ("backlog", "short backlog"): 1.15,
        ("rare", "no backlog"): 1.5,
    }.items() <= goals.items()
    for case in results["cases"]:
        for one in case["comparisons"]:
            better = one["ratio"] >= (one["goal"] or 0)
            worse = one["ratio"] <= (one["goal"] or 0)
            wanted = better if one["of"] == "rates" else worse
            assert one["met"] == (None if one["goal"] is None else wanted)
            assert one["least"] <= one["ratio"] <= one["most"]
    ours = results["wal"][0]
    assert ours["contender"] == "headrace"
    assert ours["goal"] == 750
    assert ours["met"] == (ours["bytes"] <= 750)


def test_what_is_missed_is_said_as_plainly_as_what_is_met(run: tuple[str, dict[str, Any]]) -> None:
    printed, results = run
    verdicts = [one["met"] for case in results["cases"] for one in case["comparisons"]]
    verdicts += [one["met"] for one in results["wal"]]
    table = printed.partition("\nper event")[0]
    assert table.count("MISSED") == verdicts.count(False)
    assert table.count(" met") == verdicts.count(True)


def test_who_cannot_be_measured_is_named(run: tuple[str, dict[str, Any]]) -> None:
    printed, results = run
    for case in results["cases"]:
        assert "pgqueuer" not in [one["name"] for one in case["contenders"]]
        left_out = [one for one in case["left_out"] if one["name"] == "pgqueuer"]
        assert len(left_out) == (case["case"] in ("bulk", "single"))
        assert all("no such luck" in one["why"] for one in left_out)
    assert "pgqueuer in bulk publish: pgqueuer: setup failed\nno such luck" in printed
    absent = [text.partition(" ")[0] for text in results["absent"]]
    assert [name for name in absent if name in NOT_OURS] >= ["graphile-worker", "pg-boss"]
    assert f"not installed: graphile-worker ({INSTALL})" in printed
    assert results["versions"]["pgqueuer"]


def test_every_goal_is_a_row_measured_or_not(run: tuple[str, dict[str, Any]]) -> None:
    printed, results = run
    goals = results["goals"]
    assert [(row["what"], row["against"]) for row in goals[:4]] == [
        ("drain, one node", against) for against in ("floor", "graphile-worker", "pgqueuer", "pgmq")
    ]
    for row in goals:
        assert (row["value"] is None) == (row["met"] is None) == (row["why"] is not None)
        if row["met"] is not None:
            more, less = row["value"] >= row["goal"], row["value"] <= row["goal"]
            assert row["met"] == (more if row["at"] == "least" else less)
    whys = {row["what"]: row["why"] for row in goals if row["met"] is None}
    assert whys["drain, two nodes"] == "--only nodes"
    assert whys["drain, one node, after half a backlog under a held snapshot"] == "--full"
    met, missed = (sum(row["met"] is verdict for row in goals) for verdict in (True, False))
    assert f"Of {len(goals)} goals, {met} are met and {missed} are missed" in printed


def test_a_postgresql_that_is_not_there_is_said() -> None:
    done = run_bench("--pg", "7")
    assert done.returncode == 1
    assert done.stderr.startswith("bench: no PostgreSQL 7 that")
    assert "found: PostgreSQL 1" in done.stderr


def test_nothing_is_left_in_a_server_of_somebody_else(
    run: tuple[str, dict[str, Any]], server: Server
) -> None:
    with psycopg.connect(server.dsn) as connection:
        names = connection.execute("select datname from pg_database").fetchall()
    assert not [name for (name,) in names if name.startswith("headrace_bench")]


@pytest.mark.rest
def test_without_a_server_it_starts_its_own_that_waits_for_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    bench("--only", "bulk", "--rounds", "1", "--events", "100", "--json", str(path))
    machine = json.loads(path.read_text(encoding="utf-8"))["machine"]
    assert machine["fsync"] == "on"
    assert machine["fsync_ms"] > 0
