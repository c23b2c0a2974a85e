"""docs/reliability-report.md: the text of report.md, with what was found last."""

import re
from collections import Counter
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
    faults, soak, defects, flow, servers = (
        results.kept(name) for name in ("faults", "soak", "defects", "flow", "servers")
    )
    ran = [one for kept in (faults, servers) if kept for one in kept["found"]]
    parts: dict[str, Callable[[], str]] = {
        "summary": lambda: _summary(ran, soak, defects),
        "machine": lambda: (
            f"{_where(faults)}. {len(faults['found'])} experiments, {_minutes(faults['found'])} minutes; the last run of each."
            if faults
            else _missing("faults")
        ),
        "table": lambda: _table(faults["found"]) if faults else "",
        "recovery": lambda: _recovery(faults["found"]) if faults else "",
        "servers": lambda: _servers(servers, faults) if servers else _missing(SERVERS),
        "failover": lambda: _failover(servers["found"]) if servers else "",
        "beyond": lambda: _beyond(faults["found"]) if faults else "",
        "flow": lambda: _flow(flow, faults) if flow else _missing("faults ARGS='limits debounce'"),
        "soak": lambda: _soak(soak, faults) if soak else _missing("soak"),
        "defects": lambda: _defects(defects, faults) if defects else _missing("defects"),
        "interleavings": _interleavings,
        "skipped": lambda: "".join(_skipped(kept["skipped"]) for kept in (faults, servers) if kept),
        "details": lambda: _details(ran) if ran else "",
    }
    for name, part in parts.items():
        text = text.replace(f"@{name}@", part())
    return text


def _where(found: Found, told: Found | None = None) -> str:
    """When and on what machine, unless that has been told of another run."""
    where = f"{found['at']}, {found['on']}"
    return "Day and machine as above" if told is not None and _where(told) == where else where


def _minutes(found: list[Found]) -> int:
    return round(sum(one["seconds"] for one in found) / 60)


def _missing(name: str) -> str:
    return f"*Not run yet: `make {name}`.*"


def _summary(ran: list[Found], soak: Found | None, defects: Found | None) -> str:
    rows = []
    if ran:
        held = [one for one in ran if not one["may_lose"]]
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
        f"| experiment | what happens | {' | '.join(COLUMNS)} |",
        f"|---|---|{'---:|' * len(COLUMNS)}",
    ]
    for one in found:
        figures = " | ".join(f"{one['figures'].get(name, 0):,}" for name in COLUMNS.values())
        lines.append(f"| {one['name']} | {one['what']} | {figures} |")
    uneven = [f"{one['name']} {_verdict(one)}" for one in found if one["wrong"]]
    return "\n".join([*lines, "", f"All accounts are even{_but(uneven)}."])


def _but(uneven: list[str]) -> str:
    return f", except those of {' and '.join(uneven)}" if uneven else ""


def _verdict(one: Found) -> str:
    wrong = "; ".join(one["wrong"])
    return f"(as expected: {wrong})" if one["may_lose"] else f"(**wrong**: {wrong})"


BOUNDS = {"claimable": "lease + tick, s", "begun": "lease + tick + poll, s"}
WHICH = ("median", "p99", "longest")
TIMES = {what: [f"{what} again after, {which}, s" for which in WHICH] for what in BOUNDS}
LATER = {what: f"{what} later than that" for what in BOUNDS}
RECOVERY = {name for what in BOUNDS for name in (*TIMES[what], BOUNDS[what], LATER[what])}


def _recovery(found: list[Found]) -> str:
    """The limit that most experiments have is in the head, another one beside its figure."""
    limits = {
        what: Counter(
            one["figures"][bound] for one in found if bound in one["figures"]
        ).most_common(1)[0][0]
        for what, bound in BOUNDS.items()
    }
    heads = [f"{what}: median, s | p99 | longest | after {limits[what]}" for what in BOUNDS]
    lines = [f"| experiment | {' | '.join(heads)} |", f"|---|{'---:|' * 8}"]
    for one in found:
        if one["figures"].keys() & RECOVERY:
            cells = [cell for what in BOUNDS for cell in _times(one["figures"], what, limits)]
            lines.append(f"| {one['name']} | {' | '.join(cells)} |")
    return "\n".join(lines)


SERVERS = "faults ARGS='cluster shards'"


def _servers(servers: Found, faults: Found | None) -> str:
    """What happened to several servers, and whether it came out even."""
    ran = servers["found"]
    where = f"{_where(servers, faults)}. {len(ran)} experiments, {_minutes(ran)} minutes; the last run of each."
    return f"{where}\n\n{_table(ran)}"


WAYS = ("multi-host", "HAProxy", "HTTP", "own-transactions")
PAUSES = {way: f"{way}: longest without an acknowledgement, s" for way in WAYS}
PAUSES["handlers"] = "handlers: longest without a start, s"


def _failover(found: list[Found]) -> str:
    """The longest pause of each, by experiment."""
    clustered = [one for one in found if one["figures"].keys() & set(PAUSES.values())]
    if not clustered:
        return _missing("faults ARGS=cluster")
    lines = [
        f"| experiment | {' | '.join(PAUSES)} | stream went back |",
        f"|---|{'---:|' * (len(PAUSES) + 1)}",
    ]
    for one in clustered:
        figures = [one["figures"].get(name, "") for name in PAUSES.values()]
        back = one["figures"].get("times the stream went back", 0)
        lines.append(f"| {one['name']} | {' | '.join(map(str, figures))} | {back} |")
    return "\n".join(lines)


def _times(figures: Found, what: str, limits: dict[str, float]) -> list[str]:
    limit = figures.get(BOUNDS[what], limits[what])
    beside = f" (after {limit})" if limit != limits[what] else ""
    return [
        *(f"{figures.get(name, '')}" for name in TIMES[what]),
        f"{figures.get(LATER[what], '')}{beside}",
    ]


def _beyond(found: list[Found]) -> str:
    late = sum(one["figures"].get("claimable later than that", 0) for one in found)
    if not late:
        return "Nothing was claimable later than lease and tick."
    where = [one["name"] for one in found if one["figures"].get("claimable later than that")]
    return (
        f"{late:,} events were claimable later than lease and tick ({', '.join(where)}); the cause of each is not recorded. Nothing could"
        " tick while PostgreSQL was away, frozen or cut off, and cores that always start and kill processes are not always free."
    )


def _flow(flow: Found, faults: Found | None) -> str:
    lines = ["| experiment | figure | |", "|---|---|---:|"]
    for one in flow["found"]:
        lines += [f"| {one['name']} | {name} | {n:,} |" for name, n in one["figures"].items()]
    what = [f"- **{one['name']}**, {one['seconds']} s: {one['what']}" for one in flow["found"]]
    uneven = [f"{one['name']} {_verdict(one)}" for one in flow["found"] if one["wrong"]]
    said = [*what, "", f"{_where(flow, faults)}. All accounts are even{_but(uneven)}.", "", *lines]
    return "\n".join(said)


def _soak(soak: Found, faults: Found | None) -> str:
    figures = "\n".join(
        f"| {name} | {figure} |" for name, figure in _together(soak["figures"]).items()
    )
    verdict = "**All accounts are even.**" if not soak["wrong"] else f"**Wrong:** {soak['wrong']}."
    late = soak["figures"].get("claimable later than that", 0)
    return (
        "Plain, transactional, retried and poison events, at most 1,500 a second, while workers are killed every 20 s, half of"
        " PostgreSQL's sessions terminated every 5 s, PostgreSQL restarted six times and killed once, and a"
        f" snapshot held for five minutes. {_where(soak, faults)}; seed {soak['seed']}, {soak['seconds'] / 60:.0f} minutes. {verdict}"
        " Only the workers tick, so a dead worker's events wait while PostgreSQL is away or no worker runs."
        f" The cause of each of the {late:,} claimable after lease and tick is not recorded.\n\n"
        f"| figure | |\n|---|---:|\n{figures}"
    )


TOGETHER = [
    re.compile(r"(?P<one>.+ again after), (?P<other>median|p99|longest), s"),
    re.compile(r"(?P<one>\w+): (?P<other>before|largest|after), MB"),
]


def _together(figures: dict[str, float]) -> dict[str, str]:
    """Figures of one kind in one row: `claimable again after: median, p99, longest`."""
    rows: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for name, figure in figures.items():
        found = next(filter(None, (one.fullmatch(name) for one in TOGETHER)), None)
        unit = name.rpartition(", ")[2]
        key = (found["one"], unit) if found else (name, "")
        rows.setdefault(key, []).append((found["other"] if found else "", f"{figure:,}"))
    return {
        f"{name}: {', '.join(other for other, _ in row)}, {unit}" if unit else name: ", ".join(
            figure for _, figure in row
        )
        for (name, unit), row in rows.items()
    }


def _defects(defects: Found, faults: Found | None) -> str:
    return (
        f"**Defects caught: {defects['caught']} of {defects['of']}.** Each is a patch in `tests/defects`, applied to a copy of"
        " the tree; named tests must then fail. Among them: an attempt not checked at the end of an event, an"
        " acknowledgement before the commit, a worker's clock used for leases, a heartbeat on the event loop, a missing namespace"
        f" filter. {_where(defects, faults)}."
    )


def _orders() -> int:
    return len(list(pairs())) * len(ENDS) * len(list(orders(2, 2)))


def _interleavings() -> str:
    return (
        f"**Interleavings: {_orders():,}.** Every two of {len(CALLS)} calls ({', '.join(CALLS)}) run on two real connections, in"
        " every order of their statements, committing or rolling back; lock waits are detected. Afterwards the tables"
        " must be consistent, and every event must come to one end (`tests/engine/test_interleavings.py`)."
    )


def _skipped(skipped: dict[str, str]) -> str:
    return "".join(f"- **{name}** was not run, because {why}.\n" for name, why in skipped.items())


def _details(found: list[Found]) -> str:
    """What the tables above leave out: the figures of all experiments by column, those of some by name."""
    told = {*COLUMNS.values(), *PAUSES.values()} | RECOVERY
    rest = [
        {name: figure for name, figure in one["figures"].items() if name not in told}
        for one in found
    ]
    times = Counter(name for figures in rest for name in figures)
    shared = [name for name in times if 2 * times[name] > len(found)]
    lines = [
        f"| experiment | seed | s | {' | '.join(shared)} | others |",
        f"|---|{'---:|' * (len(shared) + 2)}---|",
    ]
    for one, figures in zip(found, rest, strict=True):
        by_column = " | ".join(f"{figures[name]:,}" if name in figures else "" for name in shared)
        others = _others({name: n for name, n in figures.items() if name not in shared})
        lines.append(
            f"| {one['name']} | {one['seed']} | {one['seconds']} | {by_column} | {others} |"
        )
    return "\n".join(lines)


def _others(figures: dict[str, float]) -> str:
    """Names that differ after their last comma only are told once: `requests, alone 2, beside 3`."""
    kinds: dict[str, list[str]] = {}
    times = Counter(name.rpartition(", ")[0] for name in figures)
    for name, figure in figures.items():
        kind, _, rest = name.rpartition(", ")
        if kind and times[kind] > 1:
            kinds.setdefault(f"{kind}:", []).append(f"{rest} {figure:,}")
        else:
            kinds.setdefault(SHORTER.get(name, name), []).append(f"{figure:,}")
    return "; ".join(f"{kind} {', '.join(told)}" for kind, told in kinds.items())


SHORTER = {
    "most lines logged by a process in one absence": "most lines logged by a process in one",
    "promotions of the standby": "promotions",
}


if __name__ == "__main__":
    write()
