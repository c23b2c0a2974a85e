"""What was measured and is kept in docs/measured: of every case the newest run.

A run may have measured a few cases only, so a newer one replaces what it measured and leaves the rest. Each case's
ratios are within one run all the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from bench.results import Contest, Outcome, Results
from bench.scaling.figure import Figure

PROJECT = Path(__file__).parents[2]
RESULTS = PROJECT / "bench" / "results"
KEPT = PROJECT / "docs" / "measured"
LEAST = 20_000  # events a turn: less is a first look

Document = dict[str, Any]


class Compared(Results, frozen=True):
    """What `make bench` found, in several runs."""

    dates: dict[str, str] = msgspec.field(default_factory=dict)
    """When a case was measured."""

    def outcome(self, case: str) -> Outcome | None:
        return next((one for one in self.cases if one.case == case), None)

    def contests(self, case: str) -> list[Contest]:
        outcome = self.outcome(case)
        return outcome.contenders if outcome else []

    def contest(self, case: str, name: str) -> Contest | None:
        return next((one for one in self.contests(case) if one.name == name), None)


class Measured(msgspec.Struct, frozen=True):
    compared: Compared | None
    elsewhere: dict[str, Compared]
    """The same on other versions of PostgreSQL, by their number."""
    figures: dict[str, Figure]


def read(folder: Path = KEPT) -> Measured:
    compared = {
        path.stem.removeprefix("compared").removeprefix("-"): msgspec.json.decode(
            path.read_bytes(), type=Compared
        )
        for path in sorted(folder.glob("compared*.json"))
    }
    figures = [
        msgspec.json.decode(path.read_bytes(), type=Figure)
        for path in sorted(folder.glob("scaling-*.json"))
    ]
    return Measured(compared.pop("", None), compared, {figure.case: figure for figure in figures})


def take(results: Path = RESULTS, kept: Path = KEPT) -> None:
    """Keep what is newer than what is kept."""
    kept.mkdir(parents=True, exist_ok=True)
    runs = [run for path in results.glob("2*.json") if not _is_quick(run := _load(path))]
    for version in {run["options"].get("pg") for run in runs}:
        place = kept / (f"compared-{version}.json" if version else "compared.json")
        _take_compared([run for run in runs if run["options"].get("pg") == version], place)
    for path in sorted(results.glob("scaling-*.json")):
        _take_figure(path, kept)


def _take_compared(runs: list[Document], path: Path) -> None:
    merged: Document | None = _load(path) if path.exists() else None
    for run in sorted(runs, key=lambda run: run["at"]):
        merged = run if merged is None else _merge(merged, run)
    if merged is not None:
        path.write_text(json.dumps(_dated(merged), indent=1, ensure_ascii=False) + "\n", "utf-8")


def _is_quick(run: Document) -> bool:
    return bool(run["options"].get("quick")) or run["options"]["events"] < LEAST


def _merge(old: Document, new: Document) -> Document:
    """The newer of both, with what only the older has measured. Every run lists every goal. The
    machine, and who is absent from it, are those of the run that has measured most."""
    if new["at"] <= old["at"]:
        return old
    old, new = _dated(old), _dated(new)
    cases = {case["case"]: case for case in (*old["cases"], *new["cases"])}
    known = {
        (one["what"], one["against"]): one for one in old.get("goals", ()) if one["met"] is not None
    }
    goals = [
        known.get((one["what"], one["against"]), one) if one["met"] is None else one
        for one in new.get("goals", ())
    ]
    whole = max((new, old), key=lambda run: len(run["cases"]))
    contenders = {one["name"] for case in cases.values() for one in case["contenders"]}
    return {
        **old,
        **{name: value for name, value in new.items() if value not in (None, [], {})},
        "machine": whole["machine"],
        "options": whole["options"],
        "absent": [one for one in whole["absent"] if one.partition(" (")[0] not in contenders],
        "cases": list(cases.values()),
        "goals": goals or old.get("goals", []),
        "versions": {**old.get("versions", {}), **new.get("versions", {})},
        "dates": {**old["dates"], **new["dates"]},
    }


def _dated(run: Document) -> Document:
    return {**run, "dates": run.get("dates") or {case["case"]: run["at"] for case in run["cases"]}}


def _take_figure(path: Path, kept: Path) -> None:
    """A short look never replaces a whole measurement."""
    new = msgspec.json.decode(path.read_bytes(), type=Figure)
    place = kept / f"scaling-{new.case}.json"
    if place.exists():
        old = msgspec.json.decode(place.read_bytes(), type=Figure)
        if (not old.short, old.at) >= (not new.short, new.at):
            return
    place.write_bytes(path.read_bytes())


def _load(path: Path) -> Document:
    loaded: Document = json.loads(path.read_text(encoding="utf-8"))
    return loaded
