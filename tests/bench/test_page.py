"""docs/performance.md, its charts and README's figures are what `make performance` writes from what was measured."""

from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from bench.page import charts, measured, svg, writing
from bench.page.measured import Measured
from bench.results import Outcome, Results, Row
from bench.scaling.figure import Figure, Sample

NOTHING = Measured(None, {}, {})


def test_the_page_and_readme_say_what_was_measured() -> None:
    assert writing.stale(measured.read()) == [], "make performance"


def test_what_was_not_measured_is_said() -> None:
    page = writing.files(NOTHING)[writing.PAGE]
    places = writing.PLACE.findall(writing.TEXT.read_text(encoding="utf-8"))
    assert {*charts.PLANS, *charts.LASTING, "goals", "idle", "start"} <= set(places)
    assert "[[" not in page
    assert page.count("Not measured yet") == len(places)
    assert "Not measured yet" in writing.files(NOTHING)[writing.README]


def test_a_goal_that_was_missed_or_not_measured_is_said_with_its_figures() -> None:
    goals = [
        Row("bulk publish", "floor", "×", 0.77, "least", 0.9, met=False, least=0.7, most=0.8),
        Row("WAL per event", "", "B", 466, "most", 750, met=True),
        Row("memory", "", "MiB", None, "most", 8, met=None, why="only with --full"),
    ]
    compared = measured.Compared("2026-01-01", {}, {}, [], [], None, [], goals=goals)
    said = writing.tables.summary(compared)
    assert said == (
        "Of 2 goals 1 are met. Missed: bulk publish (0.77\u00a0× floor, not 0.9). Not measured this time: 1."
    )
    assert "not measured: only with --full" in writing.tables.goals(compared)
    assert "0.77\u00a0× (0.70–0.80)" in writing.tables.goals(compared)
    assert charts.goals(compared).count("missed") == 1


@pytest.mark.parametrize("case", [*charts.PLANS, *charts.LASTING])
def test_a_chart_of_every_case_is_drawn(case: str) -> None:
    found = measured.read().figures.get(case)
    drawn = charts.scaling(found) if found else charts.scaling(figure(case))
    root = ElementTree.fromstring(drawn)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        assert 0 <= float(text.attrib["x"]) <= width
        assert 0 <= float(text.attrib["y"]) <= height


def figure(case: str, at: str = "2026-01-01", short: bool = False) -> Figure:
    values = dict.fromkeys(
        ["server_cpu_us", "buffers", "rate", "megabytes", "wal_bytes", "p99_ms"], 2.0
    )
    samples = [Sample("before", x, values) for x in (1.0, 2.0, 2.0)]
    return Figure(case, "A title", at, short, {}, "things", samples, [], {}, 1.0)


def test_a_scale_begins_at_nothing_and_is_made_for_medians() -> None:
    panel = svg.Panel("CPU", [svg.Line("a", [(0, 3, 1, 90), (1, 4, 4, 4)])])
    drawn = svg.curves("A title", [panel], svg.even([0, 1], svg.short), "things")
    names = [
        text.text for text in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")
    ]
    assert names[1:7] == ["CPU", "0", "1", "2", "3", "4"]


def test_a_short_look_replaces_no_measurement(tmp_path: Path) -> None:
    results, kept = tmp_path / "results", tmp_path / "kept"
    results.mkdir()
    for number, (at, short) in enumerate([("1", True), ("2", False), ("3", False), ("4", True)]):
        encoded = msgspec.json.encode(figure("routes", at, short))
        (results / f"scaling-routes-{number}.json").write_bytes(encoded)
        measured.take(results, kept)
        assert measured.read(kept).figures["routes"].at == min(at, "3")


def run(
    at: str,
    cases: dict[str, str],
    events: int = 30_000,
    pg: str | None = None,
    absent: tuple[str, ...] = (),
) -> Results:
    return Results(
        at,
        {"postgresql": "18", "fsync_ms": float(at)},
        {"events": events, **({"pg": pg} if pg else {})},
        [Outcome(case, title, 1, [], []) for case, title in cases.items()],
        [],
        None,
        [*absent],
        goals=[
            Row(case, "", "×", None, "least", 1, met=True if case in cases else None)
            for case in ("bulk", "single", "rare")
        ],
    )


def test_a_newer_run_replaces_what_it_measured_and_nothing_else(tmp_path: Path) -> None:
    runs = {
        "2a": run("1", {"bulk": "old", "single": "old", "rare": "old"}, absent=("pgq",)),
        "2b": run("2", {"bulk": "new"}, absent=("pgq", "pgmq")),
        "2c": run("3", {"single": "quick"}, events=5_000),
        "2d": run("4", {"bulk": "on 15"}, pg="15"),
    }
    for name, one in runs.items():
        (tmp_path / f"{name}.json").write_bytes(msgspec.json.encode(one))
    for _ in range(2):  # the second time nothing is new
        measured.take(tmp_path, tmp_path / "kept")
        found = measured.read(tmp_path / "kept")
        assert found.compared is not None
        assert {one.case: one.title for one in found.compared.cases} == {
            "bulk": "new",
            "single": "old",
            "rare": "old",
        }
        assert found.compared.dates == {"bulk": "2", "single": "1", "rare": "1"}
        assert (found.compared.machine["fsync_ms"], found.compared.absent) == (1, ["pgq"])
        assert {one.what: one.met for one in found.compared.goals}["rare"] is True
        assert [one.title for one in found.elsewhere["15"].cases] == ["on 15"]
