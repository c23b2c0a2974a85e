"""The tables of the page, and README's, as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from bench.page.measured import Compared
from bench.results import Contest, Row
from bench.scaling.figure import MEASURES, Figure

HEADRACE = "headrace"
TOLD = {
    "headrace": "**Headrace**, every attempt logged",
    "floor": "the floor: a bare table, `DELETE … SKIP LOCKED`, at most once",
    "floor (asyncpg)": "the floor through asyncpg",
    "pgmq": "pgmq, raw SQL, a thousand at a time",
    "pgq": "PgQ, which has no claims of single events",
}
SPACE = "\u00a0"  # that does not break a figure from its unit
VERDICTS = {True: "met", False: "**missed**", None: "not measured"}
RATES = {
    "node": "drain, one process",
    "nodes": "two",
    "in-and-out": "bulk in, one out",
    "bulk": "bulk publish",
    "single": "one by one",
}
COSTS = ("bulk", "single", "node", "transactional-node", "http", "http-work")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [_line(head), "|" + "---|" * len(head), *map(_line, rows)]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in cells)}|"


def goals(compared: Compared) -> str:
    rows = [_goal(one) for one in compared.goals]
    for earlier, row in reversed(list(pairwise(rows))):
        row[0] = "" if row[0] == earlier[0] else row[0]
    return table(["", "against", "found", "goal", ""], rows)


def _goal(goal: Row) -> list[str]:
    bound = "≥" if goal.at == "least" else "≤"
    verdict = VERDICTS[goal.met]
    return [
        goal.what,
        goal.against,
        "" if goal.value is None else _value(goal.value, goal.unit) + _spread(goal),
        "" if goal.goal is None else f"{bound}{SPACE}{goal.goal:g}{_unit(goal.unit)}",
        f"{verdict}: {goal.why}" if goal.why and goal.met is None else verdict,
    ]


def _spread(goal: Row) -> str:
    """Of the rounds."""
    if goal.least is None or goal.most is None:
        return ""
    return f" ({_value(goal.least, '')}–{_value(goal.most, '')})"


def _value(value: float, unit: str) -> str:
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}{_unit(unit)}"


def _unit(unit: str) -> str:
    return f"{SPACE}{unit}" if unit else ""


def tally(compared: Compared) -> str:
    """How many goals are met."""
    judged = [one.met for one in compared.goals if one.met is not None]
    return f"Of {len(judged)} goals {sum(judged)} are met"


def summary(compared: Compared) -> str:
    """How many goals are met, and which are not, with how much of each was reached."""
    missed: dict[str, list[str]] = {}
    for one in compared.goals:
        if one.met is False:
            missed.setdefault(one.what, []).append(_missed(one))
    unknown = sum(one.met is None for one in compared.goals)
    said = f"{tally(compared)}."
    if missed:
        told = [f"{what} ({', '.join(bounds)})" for what, bounds in missed.items()]
        said += f" Missed: {'; '.join(told)}."
    if unknown:
        said += f" Not measured this time: {unknown}."
    return said


def _missed(goal: Row) -> str:
    found = "?" if goal.value is None else _value(goal.value, "")
    theirs = f" {goal.against}" if goal.unit == "×" else ""
    return f"{found}{_unit(goal.unit)}{theirs}, not {goal.goal:g}"


def side_by_side(compared: Compared, *, again: bool = False) -> str:
    """`again`: below a table that has explained the names."""
    rows = []
    for name in contenders(compared):
        drain = compared.contest("node", name)
        rows.append(
            [
                _named(compared, name, again=again),
                *(_rate(compared.contest(case, name)) for case in RATES),
                _pickup(compared, name),
                "" if drain is None else _micros(drain),
                _wal(compared.contest("bulk", name), drain),
            ]
        )
    head = [
        "events a second",
        *RATES.values(),
        "pick-up p50 / p99, ms",
        "CPU to drain one: PostgreSQL + worker",
        "WAL, publish + drain",
    ]
    return table(head, rows)


def contenders(compared: Compared) -> list[str]:
    """The fastest drain first; then those that drain nothing."""
    names = dict.fromkeys(one.name for case in RATES for one in compared.contests(case))
    drained = {one.name: one.per_second for one in compared.contests("node")}
    return sorted(names, key=lambda name: -drained.get(name, 0))


def short(compared: Compared) -> str:
    """README's: the drain by one process."""
    contests = sorted(compared.contests("node"), key=lambda one: -one.per_second)
    rows = [
        [_named(compared, one.name), _rounded(one.per_second), f"{one.wal_bytes:,.0f}{SPACE}B"]
        for one in contests
    ]
    return table(["", "events a second", "WAL per event, to drain it"], rows)


def left_out(compared: Compared) -> str:
    found = [
        f"{one.name} in “{outcome.title}” ({one.why.splitlines()[0]})"
        for outcome in compared.cases
        for one in outcome.left_out
    ]
    said = [*compared.absent, *found]
    return f"Not measured: {'; '.join(said)}." if said else ""


def costs(compared: Compared) -> str:
    rows = []
    for outcome in filter(None, map(compared.outcome, COSTS)):
        for number, one in enumerate(outcome.contenders):
            server = "?" if one.server_cpu_us is None else f"{_digits(one.server_cpu_us)}{SPACE}µs"
            client, wal = f"{_digits(one.client_cpu_us)}{SPACE}µs", f"{one.wal_bytes:,.0f}{SPACE}B"
            rows.append(["" if number else outcome.title, one.name, server, client, wal])
    return table(["per event", "", "PostgreSQL's CPU", "clients' CPU", "WAL"], rows)


def findings(figure: Figure) -> str:
    verdicts = {True: "yes", False: "**no**", None: ""}
    rows = [[one.what, one.value, verdicts[one.met]] for one in figure.findings]
    alike = Counter(row[0].partition(": ")[2] for row in rows)
    head = next((words for words, times in alike.items() if words and times > 1), "")
    for row in rows:  # what several rows say behind a colon is the head of their figures
        row[0] = row[0].removesuffix(f": {head}") if head else row[0]
    return table(["", head, ""], rows)


def at_rest(figure: Figure) -> str:
    names = figure.measures(figure.series()[0])
    rows = [
        [series, *(_digits(figure.medians(series, name).get(0, 0)) for name in names)]
        for series in figure.series()
    ]
    head = [
        f"{MEASURES[name].title}{f', {unit}' if (unit := MEASURES[name].unit) else ''}"
        for name in names
    ]
    return table(["", *head], rows)


def starts(figure: Figure) -> str:
    rows = []
    for series in figure.series():
        took = figure.places(series, "ms")[0]
        cpu = figure.medians(series, "cpu_ms").get(0)
        median = figure.medians(series, "ms")[0]
        rows.append(
            [
                series,
                f"{median:,.0f}{SPACE}ms",
                f"{min(took):,.0f}{SPACE}ms",
                "" if cpu is None else f"{cpu:,.0f}{SPACE}ms",
            ]
        )
    return table(["", "median", "quickest", "CPU"], rows)


def _pickup(compared: Compared, name: str) -> str:
    found = compared.pickup.of(name) if compared.pickup else None
    return f"{found.p50:.1f} / {found.p99:.1f}" if found else ""


def _named(compared: Compared, name: str, *, again: bool = False) -> str:
    version = compared.versions.get(name, "")
    told = TOLD.get(name, name)
    if again and name != "pgq":
        told = f"**{name.title()}**" if name == HEADRACE else name
    return f"{told}{f' ({version})' if version and name != HEADRACE else ''}"


def _rate(contest: Contest | None) -> str:
    return "" if contest is None else _rounded(contest.per_second)


def _rounded(value: float) -> str:
    """To three digits: more would pretend."""
    digits = 3 - len(str(int(value)))
    return f"{round(value, digits):,.0f}"


def _micros(contest: Contest) -> str:
    server = "?" if contest.server_cpu_us is None else _digits(contest.server_cpu_us)
    return f"{server} + {_digits(contest.client_cpu_us)}{SPACE}µs"


def _wal(published: Contest | None, drained: Contest | None) -> str:
    if published is None or drained is None:
        return ""
    return f"{published.wal_bytes + drained.wal_bytes:,.0f}{SPACE}B"


def _digits(value: float) -> str:
    return (
        f"{value:,.0f}"
        if value >= 100 or value == int(value)
        else f"{value:.1f}"
        if value >= 10
        else f"{value:.2f}"
    )
