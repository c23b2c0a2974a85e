"""Results for people, as tables and a chart of text, and for programs, as JSON."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bench.cases.memory import Memory
from bench.cases.pickup import GOALS, Pickup
from bench.results import OURS, Comparison, Contest, Outcome, Results

BAR = 40  # characters of the chart's longest bar
LONGEST = 6.0  # the ratio that has it; a longer one ends in an arrow
VERDICTS = {True: "met", False: "MISSED", None: ""}

Rows = list[list[str]]


def write(results: Results, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")


def show(results: Results) -> None:
    print()
    _table(
        ["", "Headrace /s", "against", "theirs /s", "CPU", "ratio", "from – to", "goal", ""],
        _rates(results),
        0,
        2,
    )
    print()
    _table(
        ["per event", "", "PostgreSQL CPU", "client CPU", "WAL", "vacuum CPU", "vacuum WAL"],
        _costs(results),
        0,
        1,
    )
    if timed := _requests(results):
        print()
        _table(["a request, ms", "", "p50", "p99"], timed, 0, 1)
    if results.pickup is not None:
        print()
        _table(
            ["pick-up by an idle node", "", "p50", "p99", "worst"], _latencies(results.pickup), 0, 1
        )
    if results.memory is not None:
        print()
        _table(
            ["memory of a worker, MiB", *_memory_head(results.memory)], _sizes(results.memory), 0
        )
    print("\nRatio to the others; | is the goal\n")
    print("\n".join(_chart(results)))
    print()
    _table(["goal", "against", "measured", "", ""], _goals(results), 0, 1, 4)
    if failures := list(_failures(results)):
        print("\nNot measured:")
        print("\n".join(failures))
    print(f"\n{_summary(results)}")


def _summary(results: Results) -> str:
    met, missed, unknown = (
        sum(row.met is verdict for row in results.goals) for verdict in (True, False, None)
    )
    said = f"Of {len(results.goals)} goals, {met} are met and {missed} are missed"
    return f"{said}; {unknown} were not measured." if unknown else f"{said}."


def _goals(results: Results) -> Rows:
    """Every goal there is; what was not measured says why where its verdict would be."""
    return [
        [
            row.what,
            row.against,
            "" if row.value is None else _measured(row.value, row.unit),
            f"{'≥' if row.at == 'least' else '≤'} {row.goal:g} {row.unit}",
            VERDICTS[row.met] or f"not measured: {row.why}",
        ]
        for row in results.goals
    ]


def _measured(value: float, unit: str) -> str:
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.2f} {unit}"


def _failures(results: Results) -> Iterator[str]:
    """Who was to take part and did not, and why."""
    for outcome in results.cases:
        for one in outcome.left_out:
            yield f"  {one.name} in {outcome.title}: {one.why}"
    for one in results.pickup.left_out if results.pickup else ():
        yield f"  {one.name} in pick-up: {one.why}"
    for text in results.absent:
        yield f"  not installed: {text}"


def _memory_head(memory: Memory) -> list[str]:
    return [_short(events) for events in memory.events]


def _sizes(memory: Memory) -> Rows:
    return [["after so many events", *(f"{size:.1f}" for size in memory.mebibytes)]]


def _short(events: int) -> str:
    return f"{events // 1000:,} k" if events >= 1000 and events % 1000 == 0 else f"{events:,}"


def _rates(results: Results) -> Rows:
    rows = [
        [
            outcome.title,
            _number(_of(outcome, OURS).per_second),
            comparison.against,
            _number(_of(outcome, comparison.against).per_second),
            "?" if comparison.cpu_ratio is None else f"{comparison.cpu_ratio:.1f} ×",
            f"{comparison.ratio:.2f}",
            f"{comparison.least:.2f} – {comparison.most:.2f}",
            _goal(comparison),
            VERDICTS[comparison.met],
        ]
        for outcome in results.cases
        for comparison in outcome.comparisons
    ]
    for wal in results.wal:
        if wal.contender == OURS:
            goal = f"≤ {wal.goal:.0f}"
            others = "bytes, publish + drain"
            rows.append(
                ["WAL per event", f"{wal.bytes:.0f}", others, *[""] * 4, goal, VERDICTS[wal.met]]
            )
    return rows


def _costs(results: Results) -> Rows:
    rows = [
        [outcome.title, *_cost(contest)]
        for outcome in results.cases
        for contest in outcome.contenders
    ]
    for wal in results.wal:
        more = f"{wal.with_vacuum - wal.bytes:.0f} B"
        rows.append(["publish + drain", wal.contender, "", "", f"{wal.bytes:.0f} B", "", more])
    return rows


def _latencies(pickup: Pickup) -> Rows:
    rows = [
        ["", one.name, *(f"{value:.2f} ms" for value in (one.p50, one.p99, one.worst))]
        for one in (pickup.node, pickup.notify)
    ]
    others = [
        ["", one.name, *(f"{value:.2f} ms" for value in (one.p50, one.p99, one.worst))]
        for one in pickup.others
    ]
    verdicts = [
        f"{pickup.above(what):.2f} ≤ {goal:g} ms, {VERDICTS[pickup.met(what)]}"
        for what, goal in GOALS.items()
    ]
    return [*rows, ["", "above it", *verdicts, ""], *others]


def _cost(contest: Contest) -> list[str]:
    return [
        contest.name,
        _micros(contest.server_cpu_us),
        _micros(contest.client_cpu_us),
        f"{contest.wal_bytes:.0f} B",
        _micros(contest.vacuum_cpu_us),
        f"{contest.vacuum_wal_bytes:.0f} B",
    ]


def _requests(results: Results) -> Rows:
    return [
        [outcome.title, contest.name, f"{contest.p50_ms:.2f}", f"{contest.p99_ms:.2f}"]
        for outcome in results.cases
        for contest in outcome.contenders
        if contest.p50_ms is not None
    ]


def _chart(results: Results) -> Iterator[str]:
    compared = [(outcome, one) for outcome in results.cases for one in outcome.comparisons]
    labels = [f"{outcome.case} / {one.against}" for outcome, one in compared]
    most = max([1.0, *(max(one.ratio, one.goal or 0) for _, one in compared)])
    scale = min(most, LONGEST)
    width = max(map(len, labels), default=0)
    for label, (_, one) in zip(labels, compared, strict=True):
        bar = list("█" * min(round(one.ratio / scale * BAR), BAR) or "▏")
        if one.ratio > scale:
            bar[-1] = "▶"
        if one.goal is not None:
            at = round(one.goal / scale * BAR)
            bar += " " * (at + 1 - len(bar))
            bar[at] = "|"
        yield f"{label:<{width}}  {''.join(bar):<{BAR + 1}}  {one.ratio:.2f} {VERDICTS[one.met]}".rstrip()


def _of(outcome: Outcome, name: str) -> Contest:
    return next(one for one in outcome.contenders if one.name == name)


def _goal(comparison: Comparison) -> str:
    if comparison.goal is None:
        return ""
    return f"{'≥' if comparison.of == 'rates' else '≤'} {comparison.goal:g}"


def _number(value: float) -> str:
    return f"{value:,.0f}"


def _micros(value: float | None) -> str:
    return "?" if value is None else f"{value:.1f} µs"


def _table(head: Sequence[str], rows: Rows, *left: int) -> None:
    if importlib.util.find_spec("rich") is None:
        _plain_table(head, rows, *left)
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for place, name in enumerate(head):
        table.add_column(name, justify="left" if place in left else "right", no_wrap=True)
    for row in rows:
        colour = {"met": "green", "MISSED": "bold red"}.get(row[-1])
        cells = [escape(cell) for cell in row]
        table.add_row(*cells[:-1], f"[{colour}]{cells[-1]}[/]" if colour else cells[-1])
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    console.print(table)


def _plain_table(head: Sequence[str], rows: Rows, *left: int) -> None:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in [head, *rows]:
        cells = [
            f"{cell:<{width}}" if place in left else f"{cell:>{width}}"
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
