"""`make bench-scaling`, or `python -m bench.scaling`: how cost grows with what waits, who works and how long it lasts."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bench.scaling import (
    contention,
    faults,
    lasting,
    lingering,
    numbers,
    resting,
    shards,
    strides,
    waiting,
)
from bench.scaling.figure import Case, Figure, Notes, Setting

RESULTS = Path(__file__).parents[1] / "results"


def cases() -> list[Case]:
    rooms = (waiting, numbers, strides, shards, contention, lasting, lingering, faults, resting)
    return [case for room in rooms for case in room.cases()]


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    chosen = [case for case in cases() if not options.only or case.name in options.only]
    broken = [case.name for case in chosen if not _run(case, options)]
    if broken:
        sys.exit(f"Not measured: {', '.join(broken)}")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.scaling", description=__doc__)
    names = [case.name for case in cases()]
    parser.add_argument(
        "--only", action="append", metavar="CASE", choices=names, help=", ".join(names)
    )
    parser.add_argument("--short", action="store_true", help="a look: minutes instead of hours")
    parser.add_argument(
        "--into", type=Path, default=RESULTS, metavar="FOLDER", help="for the JSON files"
    )
    parser.add_argument("--dsn", help="a server of yours; databases are created there and dropped")
    return parser.parse_args(arguments)


def _run(case: Case, options: argparse.Namespace) -> bool:
    """What one case broke does not keep the others from being measured."""
    started = datetime.now(UTC)
    begun = time.monotonic()
    print(f"\n{case.title} ({case.name})", flush=True)
    notes = Notes(lambda text: print(f"  {time.monotonic() - begun:7.1f} s  {text}", flush=True))
    try:
        measured_on = case.measure(Setting(options.dsn, options.short), notes)
    except Exception:
        traceback.print_exc()
        return False
    figure = Figure(
        case.name,
        case.title,
        started.isoformat(timespec="seconds"),
        options.short,
        measured_on,
        case.x,
        notes.samples,
        notes.findings,
        notes.facts,
        time.monotonic() - begun,
    )
    options.into.mkdir(parents=True, exist_ok=True)
    path = options.into / f"scaling-{case.name}-{started:%Y%m%dT%H%M%SZ}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(figure)) + b"\n")
    print(f"All samples: {path}", flush=True)
    return True


if __name__ == "__main__":
    main()
