"""Puts the page together: a text that people write, with tables and charts in the places that it leaves for them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from bench.page import charts, tables
from bench.page.measured import PROJECT, Compared, Measured
from bench.scaling.figure import Figure

TEXT = Path(__file__).parent / "performance.md"
PAGE = "docs/performance.md"
CHARTS = "docs/charts"
README = "README.md"
PLACE = re.compile(r"^\[\[([a-z-]+)\]\]$", re.MULTILINE)
SHORT = re.compile(r"(<!-- measured -->\n).*?(<!-- /measured -->)", re.DOTALL)
COMPARED = ("machine", "elsewhere", "summary", "goals", "side-by-side", "costs", "left-out")
NOTICE = "<!-- Written by `make performance` from docs/measured and bench/page/performance.md: change those. -->\n\n"


def files(measured: Measured) -> dict[str, str]:
    """Every file that is made of what was measured, by its path in the project."""
    drawn = _charts(measured)
    places = _places(measured)
    page = PLACE.sub(lambda found: places[found[1]](), TEXT.read_text(encoding="utf-8"))
    heading, _, rest = re.sub(r"\n{3,}", "\n\n", page).partition("\n\n")
    readme = (PROJECT / README).read_text(encoding="utf-8")
    return {
        PAGE: f"{heading}\n\n{NOTICE}{rest}",
        README: SHORT.sub(lambda found: f"{found[1]}{_short(measured)}\n{found[2]}", readme),
        **{f"{CHARTS}/{name}.svg": chart for name, chart in drawn.items()},
    }


def write(measured: Measured) -> None:
    made = files(measured)
    for left in {path.name for path in (PROJECT / CHARTS).glob("*.svg")}:
        if f"{CHARTS}/{left}" not in made:
            (PROJECT / CHARTS / left).unlink()
    for name, text in made.items():
        (PROJECT / name).parent.mkdir(parents=True, exist_ok=True)
        (PROJECT / name).write_text(text, encoding="utf-8")


def stale(measured: Measured) -> list[str]:
    """The files that are not as they would be written."""
    made = files(measured)
    extra = {f"{CHARTS}/{path.name}" for path in (PROJECT / CHARTS).glob("*.svg")} - set(made)
    changed = [
        name
        for name, text in made.items()
        if not (PROJECT / name).exists() or (PROJECT / name).read_text(encoding="utf-8") != text
    ]
    return [*changed, *sorted(extra)]


def _charts(measured: Measured) -> dict[str, str]:
    compared, figures = measured.compared, measured.figures.values()
    drawn = {one.case: charts.scaling(one) for one in figures if one.case not in ("idle", "start")}
    if compared is not None and compared.goals:
        drawn["goals"] = charts.goals(compared)
    if compared is not None and compared.outcome("node"):
        drawn["drains"] = charts.drains(compared)
    return drawn


def _places(measured: Measured) -> dict[str, Callable[[], str]]:
    compared = measured.compared

    def figure(case: str, make: Callable[[Figure], str]) -> Callable[[], str]:
        found = measured.figures.get(case)
        if found is None:
            return lambda: f'*Not measured yet: `make bench-scaling ARGS="--only {case}"` does it.*'
        return lambda: f"{make(found)}\n\n{_footnote(found)}"

    places = {case: figure(case, _drawn) for case in charts.PLANS}
    places |= {case: figure(case, _drawn_and_found) for case in charts.LASTING}
    places |= {"idle": figure("idle", tables.at_rest), "start": figure("start", tables.starts)}
    if compared is None:
        return {
            **dict.fromkeys(COMPARED, lambda: "*Not measured yet: `make bench` does it.*"),
            **places,
        }
    return places | {
        "machine": lambda: _machine(compared.machine),
        "summary": lambda: tables.summary(compared),
        "goals": lambda: f"{tables.goals(compared)}\n\n![{charts.GOALS}](charts/goals.svg)",
        "side-by-side": lambda: (
            f"{tables.side_by_side(compared)}\n\n![{charts.DRAINS}](charts/drains.svg)"
        ),
        "elsewhere": lambda: "\n\n".join(_elsewhere(*one) for one in measured.elsewhere.items()),
        "costs": lambda: tables.costs(compared),
        "left-out": lambda: "\n\n".join(
            part for part in (tables.left_out(compared), _dates(compared.dates)) if part
        ),
    }


def _elsewhere(version: str, compared: Compared) -> str:
    told = f"On PostgreSQL {version}, with what is installed for it:\n\n{tables.side_by_side(compared, again=True)}"
    return "\n\n".join(part for part in (told, tables.left_out(compared)) if part)


def _drawn(figure: Figure) -> str:
    return f"![{figure.title}: {figure.x}](charts/{figure.case}.svg)"


def _drawn_and_found(figure: Figure) -> str:
    return f"{_drawn(figure)}\n\n{tables.findings(figure)}"


def _footnote(figure: Figure) -> str:
    look = "; a short look only" if figure.short else ""
    return (
        f"<small>{figure.at[:10]}{look}: [all samples](measured/scaling-{figure.case}.json)</small>"
    )


def _dates(dates: dict[str, str]) -> str:
    days: dict[str, list[str]] = {}
    for case, at in dates.items():
        days.setdefault(at[:10], []).append(f"`{case}`")
    if len(days) == 1:
        return f"<small>Measured {next(iter(days))}. [All samples](measured/compared.json)</small>"
    told = "; ".join(f"{day}: {', '.join(cases)}" for day, cases in sorted(days.items()))
    return f"<small>Measured {told}. [All samples](measured/compared.json)</small>"


def _machine(machine: dict[str, object]) -> str:
    fsync = machine.get("fsync_ms")
    told = [
        f"{machine['cores']} cores",
        str(machine["system"]),
        f"PostgreSQL {machine['postgresql']}",
        f"Python {machine['python']}",
        f"psycopg {machine['psycopg']}",
        *(["uvloop"] if machine.get("uvloop") else []),
        f"fsync {machine['fsync']}"
        + (f" ({fsync:.2f} ms a page)" if isinstance(fsync, float) else ""),
    ]
    return f"{', '.join(told)}."


def _short(measured: Measured) -> str:
    compared = measured.compared
    if compared is None or compared.outcome("node") is None:
        return "Not measured yet: `make bench`, then `make performance`.\n"
    machine = compared.machine
    where = (
        f"Drained by one worker process with handlers that do nothing, 200-byte payloads, fsync {machine['fsync']}, {machine['cores']} cores, "
        f"PostgreSQL {machine['postgresql']}, all in one run\nthat takes turns ([how it was measured, and how it grows]({PAGE})):"
    )
    goals = f"{tables.tally(compared)}; [the others, by how much, and why]({PAGE}#what-was-missed-and-why)."
    return f"{where}\n\n{tables.short(compared)}\n\n{goals}\n"
