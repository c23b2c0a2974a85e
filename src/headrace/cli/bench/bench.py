"""`headrace bench`: the throughput of a PostgreSQL, measured in a temporary database."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from headrace.cli.source import InDatabase
from headrace.cli.terminal import times
from headrace.cli.terminal.command import command
from headrace.cli.terminal.errors import Interrupted
from headrace.cli.terminal.json import print_json
from headrace.cli.terminal.options import Json, Pooler
from headrace.cli.terminal.progress import Bar, stepping
from headrace.cli.terminal.table import Column, Show, print_table
from headrace.cli.terminal.text import number, remark

BATCH = 1000  # events that are published together

MEASURES = (
    Show(Column("what", 0, 20), lambda one: one.what),
    Show(Column("events", 3, right=True), lambda one: number(one.events)),
    Show(Column("per second", 1, right=True), lambda one: _rate(one.rate)),
    Show(Column("took", 4, right=True), lambda one: times.length(one.seconds)),
    Show(Column("p50", 1, right=True), lambda one: _milliseconds(one.p50_ms)),
    Show(Column("p95", 2, right=True), lambda one: _milliseconds(one.p95_ms)),
    Show(Column("WAL/event", 2, right=True), lambda one: _bytes(one.wal_bytes)),
)


@command(
    examples="""
    headrace bench
    headrace bench --events 100000 --connections 8
    headrace bench --seconds 3 --dsn postgresql://db.example/shop
    headrace bench --json | jq '{what, rate}'
    """,
)
def bench(
    events: Annotated[
        int,
        typer.Option(metavar="NUMBER", min=BATCH, help="Number of events to publish in batches."),
    ] = 20_000,
    seconds: Annotated[
        float,
        typer.Option(metavar="NUMBER", min=0.1, help="Time limit of each measurement, in seconds."),
    ] = 10,
    connections: Annotated[
        int,
        typer.Option(metavar="NUMBER", min=1, max=100, help="Number of concurrent connections."),
    ] = 4,
    size: Annotated[
        int, typer.Option(metavar="BYTES", min=0, max=1_000_000, help="Payload size.")
    ] = 100,
    here: Annotated[
        bool,
        typer.Option(
            "--here", help="Use a namespace of this database, without the right to create one."
        ),
    ] = False,
    pooler: Pooler = False,
    json: Json = False,
    *,
    where: InDatabase,
) -> None:
    """Measure how many events per second this PostgreSQL accepts and delivers, from here.

    It creates a temporary database on the server, which needs the right to (createdb), and drops
    it at the end; it puts load on the server. With --here it uses a temporary namespace of the
    given database, in which Headrace must be installed. It removes the namespace at the end, but
    the published events stay in the tables, unreachable, until their month is retired.

    Latencies are of a call; of a pick-up, from the return of publish to the handler. WAL is
    everything that the server wrote meanwhile."""
    from headrace.cli.bench.measure import Measurement
    from headrace.cli.bench.place import own_database, own_namespace

    singles = max(events // 10, 100)
    pick_ups = max(min(events // 200, 100), 10)
    total = 2 * (events + 2 * singles) + pick_ups
    with where.database() as source:
        try:
            with (
                (own_namespace if here else own_database)(source) as place,
                Bar("Measuring", total) as bar,
                stepping(bar) as interruption,
            ):
                run = Measurement(
                    place, connections, size, seconds, bar, interruption, prepare=not pooler
                )
                version, measures = run.everything(events, singles, pick_ups)
        except KeyboardInterrupt:
            raise Interrupted(
                "Interrupted: the temporary database or namespace is removed."
            ) from None
    if json:
        print_json([{**msgspec.structs.asdict(one), "postgresql": version} for one in measures])
        return
    print_table(MEASURES, measures)
    remark(f"Measured with this Python client, on {source.name}: PostgreSQL {version}.")


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _milliseconds(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}ms"


def _bytes(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f} B"
