"""`headrace bench`: how fast this PostgreSQL is from here, measured in a database of its own that is dropped."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from headrace.cli import times
from headrace.cli.failing import Interrupted
from headrace.cli.help import described
from headrace.cli.options import Data, Dsn, Json, Pooler
from headrace.cli.progress import Bar, stepping
from headrace.cli.showing import Column, Show, number, print_json, print_table, remark
from headrace.cli.source import database

BATCH = 1000  # events that are published together

MEASURES = (
    Show(Column("what", 0, 20), lambda one: one.what),
    Show(Column("events", 3, right=True), lambda one: number(one.events)),
    Show(Column("a second", 1, right=True), lambda one: _rate(one.rate)),
    Show(Column("took", 4, right=True), lambda one: times.length(one.seconds)),
    Show(Column("p50", 1, right=True), lambda one: _milliseconds(one.p50_ms)),
    Show(Column("p95", 2, right=True), lambda one: _milliseconds(one.p95_ms)),
    Show(Column("WAL an event", 2, right=True), lambda one: _bytes(one.wal_bytes)),
)


def register(app: typer.Typer) -> None:
    described(
        app,
        panel="On this machine",
        examples="""
        headrace bench
        headrace bench --events 100000 --connections 8
        headrace bench --seconds 3 --dsn postgresql://db.example/shop
        headrace bench --json | jq '{what, rate}'
        """,
    )(bench)


def bench(
    events: Annotated[
        int, typer.Option(metavar="NUMBER", min=BATCH, help="Events that go through in batches.")
    ] = 20_000,
    seconds: Annotated[
        float,
        typer.Option(metavar="NUMBER", min=0.1, help="No single measurement lasts longer."),
    ] = 10,
    connections: Annotated[
        int,
        typer.Option(metavar="NUMBER", min=1, max=100, help="Connections that publish at once."),
    ] = 4,
    size: Annotated[
        int, typer.Option(metavar="BYTES", min=0, max=1_000_000, help="Size of a payload.")
    ] = 100,
    here: Annotated[
        bool,
        typer.Option(
            "--here", help="In a namespace of this database, for users who may not create one."
        ),
    ] = False,
    pooler: Pooler = False,
    json: Json = False,
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Measure how many events a second this PostgreSQL takes and hands out, from here.

    It creates a database of its own on the server, for which the user needs the right to (createdb), and drops it in the
    end; it puts load on the server while it lasts. With --here it works in a namespace of the database of this address, in which Headrace
    must be. The namespace is removed in the end, but what was published stays in the tables, where nobody can ask for it any more, until
    their month is retired.

    Times are of a call, and for a pick-up from the return of publish to the handler. WAL is all that the server wrote meanwhile."""
    from headrace.cli.measuring import Run
    from headrace.cli.premises import own_database, own_namespace

    singles = max(events // 10, 100)
    pick_ups = max(min(events // 200, 100), 10)
    total = 2 * (events + 2 * singles) + pick_ups
    with database(dsn, data) as where:
        try:
            with (
                (own_namespace if here else own_database)(where) as place,
                Bar("Measuring", total) as bar,
                stepping(bar) as interruption,
            ):
                run = Run(place, connections, size, seconds, bar, interruption, prepare=not pooler)
                version, measures = run.everything(events, singles, pick_ups)
        except KeyboardInterrupt:
            raise Interrupted("Interrupted: what was measured with is removed.") from None
    if json:
        print_json([{**msgspec.structs.asdict(one), "postgresql": version} for one in measures])
        return
    print_table(MEASURES, measures)
    remark(f"By this Python client, on {where.name}: PostgreSQL {version}.")


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _milliseconds(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}ms"


def _bytes(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f} B"
