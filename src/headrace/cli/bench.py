"""`headrace bench`: how fast this PostgreSQL is from here, measured in a namespace of its own that is removed."""

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
from headrace.cli.source import prepared

BATCH = 1000  # events that are published together

MEASURES = (
    Show(Column("what", 0, 20), lambda one: one.what),
    Show(Column("events", 2, right=True), lambda one: number(one.events)),
    Show(Column("a second", 1, right=True), lambda one: f"{one.rate:,.0f}"),
    Show(Column("took", 3, right=True), lambda one: times.length(one.seconds)),
    Show(Column("call p50", 2, right=True), lambda one: _milliseconds(one.p50_ms)),
    Show(Column("call p95", 2, right=True), lambda one: _milliseconds(one.p95_ms)),
)


def register(app: typer.Typer) -> None:
    described(
        app,
        panel="On this machine",
        examples="""
        headrace bench
        headrace bench --events 100000 --connections 8
        headrace bench --json | jq '{what, rate}'
        """,
    )(bench)


def bench(
    events: Annotated[
        int, typer.Option(metavar="NUMBER", min=BATCH, help="Events that go through in batches.")
    ] = 20_000,
    connections: Annotated[
        int, typer.Option(metavar="NUMBER", min=1, max=100, help="Connections that work at once.")
    ] = 4,
    size: Annotated[
        int, typer.Option(metavar="BYTES", min=0, max=1_000_000, help="Size of a payload.")
    ] = 100,
    pooler: Pooler = False,
    json: Json = False,
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Measure how many events a second this PostgreSQL takes and hands out, from here.

    It works in a namespace of its own, which is removed in the end, and puts load on the server while it lasts. What it
    published stays in the tables, where nobody can ask for it any more, until their month is retired."""
    from headrace.cli.measuring import ROUNDS, Run, own_namespace

    singles = max(events // 10, 100)
    total = 2 * (events + singles) + ROUNDS
    with prepared(dsn, data) as where:
        try:
            with (
                own_namespace(where, connections, pooler=pooler) as queue,
                Bar("Measuring", total) as bar,
                stepping(bar) as interruption,
            ):
                run = Run(queue, connections, "x" * size, bar, interruption)
                measures = run.everything(events, singles)
        except KeyboardInterrupt:
            raise Interrupted("Interrupted: the namespace of the measurement is removed.") from None
    if json:
        print_json([{**msgspec.structs.asdict(one), "rate": one.rate} for one in measures])
        return
    print_table(MEASURES, measures)
    remark(f"By this Python client over {connections} connections, on {where.name}.")


def _milliseconds(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}ms"
