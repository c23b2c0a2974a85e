"""docs/reliability-report.md: the text of report.md, with what was found last."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.engine.interleavings import orders
from tests.engine.test_interleavings import CALLS, ENDS, pairs
from tests.laboratory import results

TEXT = Path(__file__).parent / "report.md"
PAGE = Path(__file__).parents[2] / "docs" / "reliability-report.md"

Found = dict[str, Any]


def write() -> None:
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """What has not been run yet is said to be missing."""
    text = TEXT.read_text(encoding="utf-8")
    faults, soak, defects = (results.kept(name) for name in ("faults", "soak", "defects"))
    parts: dict[str, Callable[[], str]] = {
        "summary": lambda: _summary(faults, soak, defects),
        "machine": lambda: (
            f"{_where(faults)}. {len(faults['found'])} experiments, {_minutes(faults['found'])} minutes; of each the last run is told."
            if faults
            else _missing("faults")
        ),
        "table": lambda: _table(faults["found"]) if faults else "",
        "recovery": lambda: _recovery(faults["found"]) if faults else "",
        "beyond": lambda: _beyond(faults["found"]) if faults else "",
        "soak": lambda: _soak(soak) if soak else _missing("soak"),
        "defects": lambda: _defects(defects) if defects else _missing("defects"),
        "interleavings": _interleavings,
        "skipped": lambda: _skipped(faults["skipped"]) if faults else "",
        "details": lambda: "\n\n".join(map(_details, faults["found"])) if faults else "",
    }
    for name, part in parts.items():
        text = text.replace(f"@{name}@", part())
    return text


def _where(found: Found) -> str:
    return f"{found['at']}, {found['on']}"


def _minutes(found: list[Found]) -> int:
    return round(sum(one["seconds"] for one in found) / 60)


def _missing(name: str) -> str:
    return f"*Not run yet: `make {name}`.*"


def _summary(faults: Found | None, soak: Found | None, defects: Found | None) -> str:
    rows = []
    if faults:
        held = [one for one in faults["found"] if not one["may_lose"]]
        even = sum(not one["wrong"] for one in held)
        events = sum(one["figures"].get("published", 0) for one in held)
        rows.append(f"| experiments whose accounts are even | {even} of {len(held)} |")
        rows.append(f"| events published in them | {events:,} |")
    if soak:
        verdict = "even" if not soak["wrong"] else "**wrong**"
        rows.append(
            f"| accounts of the long run, {soak['figures']['published']:,} events | {verdict} |"
        )
    if defects:
        rows.append(
            f"| defects caught, of those made on purpose | {defects['caught']} of {defects['of']} |"
        )
    rows.append(f"| interleavings of two calls | {_orders():,} |")
    return "\n".join(["| | |", "|---|---|", *rows])


COLUMNS = {
    "published": "published",
    "redelivered": "redelivered",
    "abandoned": "abandoned",
    "too late": "late finishes refused",
    "unknown": "publishes of which nobody knew",
    "longest call, s": "longest blocked call, s",
}


def _table(found: list[Found]) -> str:
    lines = [
        f"| experiment | what happens | {' | '.join(COLUMNS)} | accounts |",
        f"|---|---|{'---:|' * len(COLUMNS)}---|",
    ]
    for one in found:
        figures = " | ".join(f"{one['figures'].get(name, 0):,}" for name in COLUMNS.values())
        lines.append(f"| {one['name']} | {one['what']} | {figures} | {_verdict(one)} |")
    return "\n".join(lines)


def _verdict(one: Found) -> str:
    if not one["wrong"]:
        return "even"
    return "as expected: " + "; ".join(one["wrong"]) if one["may_lose"] else "**wrong**"


def _recovery(found: list[Found]) -> str:
    names = [
        f"{what} again after, {which}, s"
        for what in ("claimable", "begun")
        for which in ("median", "p99", "longest")
    ]
    lines = [
        "| experiment | claimable: median, s | p99 | longest | begun: median, s | p99 | longest |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for one in found:
        if names[3] in one["figures"]:
            figures = " | ".join(f"{one['figures'].get(name, '')}" for name in names)
            lines.append(f"| {one['name']} | {figures} |")
    return "\n".join(lines)


def _beyond(found: list[Found]) -> str:
    late = sum(one["figures"].get("claimable later than that", 0) for one in found)
    if not late:
        return "Nothing was claimable later than lease and tick."
    where = [one["name"] for one in found if one["figures"].get("claimable later than that")]
    return (
        f"{late:,} were claimable later than lease and tick ({', '.join(where)}). What each of them waited for is not recorded; where PostgreSQL itself was"
        " away, frozen or cut off nobody could tick, and cores that start and kill processes all the time are not always there in time."
    )


def _soak(soak: Found) -> str:
    figures = "\n".join(f"| {name} | {figure:,} |" for name, figure in soak["figures"].items())
    verdict = "**All accounts are even.**" if not soak["wrong"] else f"**Wrong:** {soak['wrong']}."
    late = soak["figures"].get("claimable later than that", 0)
    return (
        "Plain, transactional, retried and poison, published at 1,500 a second at most, while workers are killed every 20 s, half of"
        " PostgreSQL's sessions terminated every 5 s, PostgreSQL restarted six times and killed once, and somebody holds a"
        f" snapshot for five minutes. {_where(soak)}; seed {soak['seed']}, {soak['seconds'] / 60:.0f} minutes. {verdict}"
        " Here nobody ticks but the workers, so what a dead one had waits while PostgreSQL is away, or all of them are dead or just"
        f" starting. {late:,} were claimable later than lease and tick; what each of them waited for is not recorded.\n\n"
        f"| figure | |\n|---|---:|\n{figures}"
    )


def _defects(defects: Found) -> str:
    return (
        f"**Defects caught: {defects['caught']} of {defects['of']}.** Each is kept as a patch in `tests/defects`, is made in a copy of"
        " the tree in turn, and named tests must turn red: among them an attempt that is not checked at the end of an event, an"
        " acknowledgement before the commit, a worker's clock used for leases, a heartbeat on the event loop, a filter by namespace"
        f" that is missing in one place. {_where(defects)}."
    )


def _orders() -> int:
    return len(list(pairs())) * len(ENDS) * len(list(orders(2, 2)))


def _interleavings() -> str:
    return (
        f"**Interleavings: {_orders():,}.** Every two of {len(CALLS)} calls ({', '.join(CALLS)}) are made on two real connections, in"
        " every order of their statements, committing or rolling back; who waits for a lock is detected. After each the tables"
        " must make sense, and everything must still come to one end (`tests/engine/test_interleavings.py`)."
    )


def _skipped(skipped: dict[str, str]) -> str:
    return "".join(f"- **{name}** was not run, because {why}.\n" for name, why in skipped.items())


def _details(one: Found) -> str:
    figures = ", ".join(f"{name} {figure:,}" for name, figure in one["figures"].items())
    return f"**{one['name']}**, seed {one['seed']}, {one['seconds']} s: {figures}."


if __name__ == "__main__":
    write()
