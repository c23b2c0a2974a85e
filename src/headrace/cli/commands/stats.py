"""`headrace stats`: the queues of a namespace in numbers."""

from __future__ import annotations

from datetime import timedelta

from rich.text import Text

from headrace.cli.source import AllQueues
from headrace.cli.terminal import times
from headrace.cli.terminal.command import command
from headrace.cli.terminal.json import print_json
from headrace.cli.terminal.options import Json, Period
from headrace.cli.terminal.table import Column, InQueue, Show, print_table
from headrace.cli.terminal.text import number, remark
from headrace.model import Stats

STATS = (
    Show(Column("queue", 0, 8), lambda one: one.queue),
    Show(Column("ready", 1, right=True), lambda one: number(one.record.ready)),
    Show(Column("delayed", 2, right=True), lambda one: number(one.record.delayed)),
    Show(Column("in progress", 1, right=True), lambda one: number(one.record.processing)),
    Show(Column("ahead", 3, right=True), lambda one: number(one.record.claimed_ahead)),
    Show(Column("dead", 1, right=True), lambda one: _dead(one.record)),
    Show(Column("oldest", 2, right=True), lambda one: times.ago(one.record.oldest_ready_at)),
    Show(Column("published", 3, right=True), lambda one: number(one.record.published)),
    Show(Column("completed", 3, right=True), lambda one: number(one.record.completed)),
    Show(Column("failed", 3, right=True), lambda one: number(one.record.failed)),
    Show(Column("abandoned", 5, right=True), lambda one: number(one.record.abandoned)),
    Show(Column("died", 4, right=True), lambda one: number(one.record.dead_lettered)),
    Show(Column("average", 4, right=True), lambda one: times.milliseconds(one.record.average_ms)),
)


@command(
    examples="""
    headrace stats
    headrace stats --queue billing --period 1h
    headrace stats --json | jq 'select(.dead_letters > 0)'
    """,
)
def stats(period: Period = timedelta(minutes=5), json: Json = False, *, where: AllQueues) -> None:
    """Show queue depths and recent counts for the queues of a namespace."""
    with where.each() as queues:
        found = [InQueue(name, queue.stats(period)) for name, queue in queues.items()]
    if json:
        print_json([one.line(where.namespace) for one in found])
        return
    print_table(STATS, found)
    remark(f"Counts (published, completed, …) cover the last {times.length(period)}.")
    if not all(one.record.is_exact for one in found):
        remark("Depths over 100,000 are estimates.")


def _dead(stats: Stats) -> Text:
    return Text(number(stats.dead_letters), style="red" if stats.dead_letters else "")
