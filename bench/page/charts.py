"""Which chart shows what."""

from __future__ import annotations

from dataclasses import dataclass

from bench.page import svg
from bench.page.measured import Compared
from bench.scaling.figure import MEASURES, Figure

NAMES = {"headrace": "Headrace", "floor": "the floor"}
LONGEST = 4.0  # the ratio that has the longest bar
MISSED, MET = "b", "a"
GOALS = "Of each goal, how much is reached"
DRAINS = "Drained by one worker process, events a second"


@dataclass(frozen=True)
class Plan:
    measure: str
    series: tuple[str, ...] = ()
    """None named: all that have it."""
    log: bool = False


PLANS: dict[str, tuple[Plan, ...]] = {
    "backlog": (
        Plan("server_cpu_us"),
        Plan("buffers"),
        Plan("rate"),
    ),
    "routes": (Plan("server_cpu_us", log=True), Plan("buffers", log=True), Plan("rate", log=True)),
    "delayed": (Plan("server_cpu_us"), Plan("tick_ms"), Plan("rate")),
    "workers": (Plan("rate"), Plan("server_cpu_us"), Plan("client_cpu_us")),
    "publishers": (
        Plan("rate", ("one by one",)),
        Plan("rate", ("a hundred together",)),
        Plan("server_cpu_us", log=True),
    ),
    "contention": (Plan("rate"), Plan("waiting_percent"), Plan("server_cpu_us")),
    "payloads": (Plan("megabytes"), Plan("server_cpu_us", log=True), Plan("wal_bytes", log=True)),
    "queues": (Plan("server_cpu_us"), Plan("wal_bytes")),
    "shards": (
        Plan("cpu_us", ("publish in bulk", "drain in bulk")),
        Plan("cpu_us", ("publish with a key", "publish with a key, by hand")),
        Plan("cpu_us", ("drain one by one", "drain one by one, by hand")),
    ),
    "strides": (Plan("wal_bytes"), Plan("rows"), Plan("server_cpu_us")),
}
LASTING: dict[str, dict[str, dict[str, str]]] = {
    "sustained": {
        "From publish to handler, ms": {"p50_ms": "p50", "p99_ms": "p99"},
        "Events waiting": {"depth": ""},
        "WAL per event, B": {"wal_bytes": ""},
        "CPU per event, µs": {"server_cpu_us": "PostgreSQL", "client_cpu_us": "clients"},
        "Size of the hot tables, MB": {"hot_mb": ""},
    },
    "snapshot": {
        "Size of the hot tables, MB": {"hot_mb": ""},
        "A claim, ms": {"claim_ms": ""},
        "PostgreSQL's CPU per event, µs": {"server_cpu_us": ""},
        "Buffers per event": {"buffers": ""},
        "From publish to handler, ms": {"p50_ms": "p50", "p99_ms": "p99"},
    },
}
"""Panels by their title; in each, measures and what their lines are called."""


def scaling(figure: Figure) -> str:
    if figure.case in LASTING:
        return _lasting(figure)
    places = sorted({sample.x for sample in figure.samples})
    spread = max(places) / (min(places) or 1e-9)
    axis = (
        svg.even(places, svg.short) if spread > 20 else svg.linear(places, svg.short, min(places))
    )
    panels = [_panel(figure, plan) for plan in PLANS[figure.case]]
    return svg.curves(figure.title, [panel for panel in panels if panel.lines], axis, figure.x)


def _panel(figure: Figure, plan: Plan) -> svg.Panel:
    lines = [
        svg.Line(name, points, svg.COLOURS[number % len(svg.COLOURS)])
        for number, name in enumerate(figure.series())
        if not plan.series or name in plan.series
        if (points := _points(figure, name, plan.measure))
    ]
    return svg.Panel(_title(plan.measure), lines, plan.log)


def _points(figure: Figure, series: str, measure: str) -> svg.Points:
    medians = figure.medians(series, measure)
    return [
        (x, medians[x], min(values), max(values))
        for x, values in figure.places(series, measure).items()
    ]


def _lasting(figure: Figure) -> str:
    last = max(sample.x for sample in figure.samples)
    step = next(one for one in (10, 20, 60, 120, 300, 600) if last / one <= 9)
    ticks = [float(x) for x in range(0, int(last) + 1, step)]
    axis = svg.Axis([(x, _clock(x)) for x in ticks], lambda x: x / last)
    facts = figure.facts
    shade = (facts["from"], facts["until"]) if "until" in facts else None
    panels = [
        svg.Panel(title, _lines(figure, measures), dots=False, shade=shade)
        for title, measures in LASTING[figure.case].items()
    ]
    return svg.curves(
        figure.title, panels, axis, "minutes" + (", shaded: the snapshot is held" if shade else "")
    )


def _lines(figure: Figure, measures: dict[str, str]) -> list[svg.Line]:
    return [
        svg.Line(
            name,
            [
                (one.x, *[one.values[measure]] * 3)
                for one in figure.samples
                if measure in one.values
            ],
            colour,
        )
        for (measure, name), colour in zip(measures.items(), svg.COLOURS, strict=False)
    ]


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def _title(measure: str) -> str:
    title, unit = MEASURES[measure].title, MEASURES[measure].unit
    told = f"{title[0].upper()}{title[1:]}"
    return f"{told}, {unit}" if unit and unit != "/s" else told


def goals(compared: Compared) -> str:
    """What is reached, as a share of what was aimed for: one and more is met."""
    rows = []
    for one in compared.goals:
        if one.value is None or not one.goal or one.value <= 0:
            continue
        reached = one.value / one.goal if one.at == "least" else one.goal / one.value
        name = f"{one.what}{f' / {one.against}' if one.against else ''}"
        kind = MET if one.met else MISSED
        rows.append((name, reached, 1.0, f"{reached:.2f}{'' if one.met else ', missed'}", kind))
    return svg.bars(GOALS, rows, LONGEST)


def drains(compared: Compared) -> str:
    contests = sorted(compared.contests("node"), key=lambda one: -one.per_second)
    most = max((one.per_second for one in contests), default=1)
    rows = [
        (
            NAMES.get(one.name, one.name),
            one.per_second,
            None,
            f"{one.per_second:,.0f} /s",
            "a" if one.name == "headrace" else "e",
        )
        for one in contests
    ]
    return svg.bars(DRAINS, rows, most)
