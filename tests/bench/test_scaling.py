"""The cases that say how cost grows and what lasts; their verdicts are computed, so they are tested."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

import bench.server
from bench.measure import Meter
from bench.scaling.contention import committed, waiting
from bench.scaling.figure import Notes
from bench.scaling.histogram import Histogram
from bench.scaling.lasting import judge_load, judge_snapshot
from bench.scaling.load import load
from bench.scaling.numbers import published
from bench.scaling.trends import growth, is_flat, peaks, slope
from tests.database import Server

PROJECT = Path(__file__).parents[2]


def notes() -> Notes:
    return Notes(lambda text: None)


def test_a_trend_is_not_moved_by_outliers() -> None:
    steady = [(float(x), 10.0 + (500 if x == 7 else 0)) for x in range(20)]
    assert slope(steady) == 0
    growing = [(float(x), 10.0 + 0.5 * x + (500 if x == 7 else 0)) for x in range(20)]
    assert slope(growing) == pytest.approx(0.5, rel=0.1)
    assert growth(growing) == pytest.approx(9.5, rel=0.1)
    assert is_flat(steady, 0.1)
    assert not is_flat(growing, 0.1)
    assert is_flat(growing, 0.1, or_by=20)


def test_a_histogram_knows_percentiles_to_a_twentieth() -> None:
    first, second, both = Histogram(), Histogram(), Histogram()
    for number in range(1, 1001):
        (first if number % 2 else second).add(number / 1000)
    for part in (first, second):
        both.merge(json.loads(json.dumps(part.counts)))
    assert both.total == 1000
    assert both.percentile(50) == pytest.approx(0.5, rel=0.06)
    assert both.percentile(99) == pytest.approx(0.99, rel=0.06)
    assert Histogram().percentile(50) is None


@pytest.mark.parametrize("slower", [0.0, 1.0])
def test_load_that_grows_is_found(slower: float) -> None:
    taken = notes()
    for t in range(0, 600, 5):
        taken.note(
            "load",
            t,
            rate=1000 - slower * t,
            depth=100 + slower * 20 * t,
            p99_ms=20 + slower * t,
            wal_bytes=500 + slower * t,
            hot_mb=10 + slower * t,
            vacuums=t // 60,
        )
    judge_load(taken, 1000)
    assert [one.met for one in taken.findings] == [slower == 0] * 5


@pytest.mark.parametrize("slower", [0.0, 0.5])
def test_tables_that_vacuum_truncates_grow_if_their_peaks_do(slower: float) -> None:
    """A saw, cut where a line through it rises."""
    points = [(t, 50 + (t + 40) % 160 + slower * t) for t in range(0, 600, 5)]
    early, late = peaks(points)
    assert (late <= 1.2 * early) is (slower == 0)


@pytest.mark.parametrize("after", [1.0, 3.0])
def test_whether_a_released_snapshot_leaves_something_is_found(after: float) -> None:
    taken = notes()
    taken.facts["until"] = 200.0
    for t in range(300):
        phase = "before" if t < 100 else "held" if t < 200 else "after"
        cpu = {"before": 1.0, "held": 2.0, "after": after}[phase] * 40
        taken.note(phase, t, server_cpu_us=cpu, hot_mb=1.0)
    judge_snapshot(taken)
    found = {one.what: one for one in taken.findings}
    (cpu_finding,) = [one for what, one in found.items() if what.startswith("PostgreSQL")]
    assert "80.00 (2.00 ×)" in cpu_finding.value
    assert taken.findings[-1].met is (after == 1.0)


@pytest.fixture(scope="module")
def measured_server(server: Server) -> Iterator[bench.server.Server]:
    with closing(bench.server.Server(server.dsn)) as made:
        yield made


@pytest.mark.long  # processes are started
def test_publishers_are_counted_on_all_their_connections(
    measured_server: bench.server.Server,
) -> None:
    with measured_server.database() as dsn, closing(Meter(dsn)) as meter:
        found = published(dsn, meter, connections=3, together=10, seconds=0.5)
        with psycopg.connect(dsn) as connection:
            count = connection.execute("select count(*) from headrace.events").fetchone()
    assert count is not None
    assert count[0] > 0
    assert found["rate"] is not None
    assert found["wal_bytes"] is not None
    assert 0 < found["rate"] <= count[0] / 0.5
    assert 100 < found["wal_bytes"] < 10_000


# Sessions that publish wait for each other.
ONE_BY_ONE = """
create function public.wait() returns trigger language plpgsql
as $$ begin
    perform pg_catalog.pg_advisory_xact_lock(7);
    perform count(*) from pg_catalog.generate_series(1, 100000);    -- longer than it takes to come
    return new;
end $$;
create trigger waits before insert on headrace.counts for each row execute function public.wait()"""


def test_transactions_that_publish_are_counted_and_seen_waiting(
    measured_server: bench.server.Server,
) -> None:
    with measured_server.database() as dsn, closing(Meter(dsn)) as meter:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(ONE_BY_ONE)
        found, seen = committed(dsn, meter, connections=8, seconds=0.3, notify="on")
        with psycopg.connect(dsn) as connection:
            count = connection.execute("select count(*) from headrace.events").fetchone()
    assert count is not None
    assert found["rate"] is not None
    assert count[0] > 8
    assert 0 < found["rate"] <= (count[0] - 8) / 0.3, "the first of each session is not counted"
    assert seen["Lock: advisory"]
    assert "Timeout: PgSleep" not in seen, "their own work is none"


def test_waiting_is_the_part_that_is_not_running() -> None:
    assert waiting(Counter({"running": 1, "Lock: object": 3})) == 75
    assert waiting(Counter()) == 0


@pytest.mark.long  # processes are started, and it takes some samples
def test_a_load_is_sampled_while_it_lasts(measured_server: bench.server.Server) -> None:
    taken = notes()
    with (
        measured_server.database() as dsn,
        load(measured_server, dsn, taken, rate=500, together=10) as made,
    ):
        made.skip(2)
        made.watch("load", 6, every=2)
    assert [sample.series for sample in taken.samples] == ["load"] * len(taken.samples)
    assert len(taken.samples) >= 3
    for sample in taken.samples:
        assert sample.values["rate"] > 0
        assert sample.values["p99_ms"] >= sample.values["p50_ms"] > 0
        assert sample.values["hot_mb"] > 0


@pytest.mark.long  # every turn takes seconds
def test_a_case_writes_its_samples(server: Server, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "bench.scaling", "--short", "--only", "queues"]
    done = subprocess.run(
        [*command, "--dsn", server.dsn, "--into", str(tmp_path)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = tmp_path.iterdir()
    figure = json.loads(path.read_text(encoding="utf-8"))
    assert (figure["case"], figure["short"]) == ("queues", True)
    for sample in figure["samples"]:
        assert sample["values"]["rate"] > 0
        assert sample["values"]["wal_bytes"] > 0
