"""`make bench`, or `python -m bench`: run the cases and say what was found."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import psycopg

from bench import goals, peers, report
from bench.cases import Case, Setting, cases, memory, pickup
from bench.machine import machine
from bench.measure import Meter, play
from bench.results import Outcome, Results, footprints, outcome
from bench.server import Server, serve
from headrace.errors import EmbeddedError

RESULTS = Path(__file__).parent / "results"


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    started = datetime.now(UTC)
    try:
        with serve(options.dsn, major=options.pg) as server:
            results = _measure(server, options, started)
    except EmbeddedError as error:
        sys.exit(f"bench: {error}")
    path = options.json or RESULTS / f"{started:%Y%m%dT%H%M%SZ}.json"
    report.write(results, path)
    report.show(results)
    print(f"All samples: {path}")


def _measure(server: Server, options: argparse.Namespace, started: datetime) -> Results:
    outcomes = [_play(case, server, options) for case in _chosen(options)]
    picked_up = remembered = None
    if _wants(options, goals.PICKUP):
        with server.database() as database:
            picked_up = pickup.measure(database, options.events, _say)
    if _wants(options, goals.MEMORY, full=True):
        with server.database() as database:
            remembered = memory.measure(database, options.backlog, _say)
    _say("")
    with psycopg.connect(server.dsn) as connection:
        absent, versions = peers.absent(connection), peers.versions(connection)
    wal = footprints(outcomes)
    return Results(
        at=started.isoformat(timespec="seconds"),
        machine=machine(server),
        options={
            "rounds": options.rounds,
            "events": options.events,
            "full": options.full,
            "quick": options.quick,
            "pg": options.pg,
        },
        cases=outcomes,
        wal=wal,
        pickup=picked_up,
        absent=[f"{name} ({how})" for name, how in absent.items()],
        versions=versions,
        memory=remembered,
        goals=goals.rows(outcomes, wal, picked_up, remembered, absent),
    )


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=_count, help="in which all take their turn (7)")
    parser.add_argument("--events", type=_count, help="a turn in the batch cases (30000)")
    parser.add_argument("--quick", action="store_true", help="3 rounds of 5000 events")
    parser.add_argument("--full", action="store_true", help="long backlogs too, some minutes")
    parser.add_argument("--backlog", type=_count, default=1_000_000, help="how long (%(default)s)")
    parser.add_argument(
        "--only",
        action="append",
        metavar="CASE",
        choices=[*(case.name for case in cases()), goals.PICKUP, goals.MEMORY],
    )
    parser.add_argument("--json", type=Path, metavar="PATH", help="instead of bench/results/")
    parser.add_argument(
        "--pg", type=_count, metavar="MAJOR", help="of PostgreSQL, the system's or the wheel's (18)"
    )
    parser.add_argument("--dsn", help="a server of yours; databases are created there and dropped")
    options = parser.parse_args(arguments)
    if options.dsn and options.pg:
        parser.error("--pg starts a PostgreSQL, and --dsn names one that runs: give one of them")
    options.rounds = options.rounds or (3 if options.quick else 7)
    options.events = options.events or (5_000 if options.quick else 30_000)
    return options


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"not a number above 0: {text}")
    return int(text)


def _chosen(options: argparse.Namespace) -> list[Case]:
    if options.only:
        return [case for case in cases() if case.name in options.only]
    return [case for case in cases() if options.full or not case.full]


def _wants(options: argparse.Namespace, name: str, *, full: bool = False) -> bool:
    return name in options.only if options.only else options.full or not full


def _play(case: Case, server: Server, options: argparse.Namespace) -> Outcome:
    events = max(int(options.events * case.share), 1)
    with ExitStack() as opened:
        _say(f"{case.title}: preparing")
        contenders = case.contenders(Setting(server, opened, options.backlog))
        for contender in contenders:
            opened.callback(contender.close)
        meter = Meter(server.dsn)
        opened.callback(meter.close)
        rounds = min(options.rounds, case.rounds) * case.turns
        played = play(meter, contenders, events, rounds, lambda text: _say(f"{case.title}: {text}"))
    _say("")
    return outcome(case, played)


def _say(text: str) -> None:
    """Progress, in place, where somebody looks."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
