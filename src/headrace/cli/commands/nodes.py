"""`headrace nodes`, `workers`: the processes that handle events."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from headrace.cli.source import AllQueues, InNamespace
from headrace.cli.terminal import times
from headrace.cli.terminal.command import command
from headrace.cli.terminal.json import print_json
from headrace.cli.terminal.options import Json, Period
from headrace.cli.terminal.table import Column, InQueue, Show, print_table
from headrace.cli.terminal.text import clean, count, listed, number, remark, say, state
from headrace.model import NodeInfo, UnhandledType

NODES = (
    Show(Column("node", 0, 12), lambda node: node.node_id),
    Show(Column("state", 1), lambda node: state(_life(node))),
    Show(Column("heartbeat", 2, right=True), lambda node: times.ago(node.last_heartbeat)),
    Show(Column("handles", 2, 16), lambda node: listed(node.handles, "nothing")),
    Show(Column("worker", 4, 12), lambda node: node.worker_id),
    Show(Column("started", 5, right=True), lambda node: times.ago(node.started_at)),
    Show(Column("name", 6, 10), lambda node: node.display_name or "–"),
)
WORKERS = (
    Show(Column("worker", 0, 12), lambda one: one.record.worker_id),
    Show(Column("queue", 2, 8), lambda one: one.queue),
    Show(Column("holds", 1, right=True), lambda one: number(one.record.holds)),
    Show(Column("lease ends", 3, right=True), lambda one: times.ago(one.record.lease_expires_at)),
    Show(Column("last seen", 1, right=True), lambda one: times.ago(one.record.last_seen_at)),
    Show(Column("completed", 2, right=True), lambda one: number(one.record.completed)),
    Show(Column("failed", 2, right=True), lambda one: number(one.record.failed)),
    Show(Column("released", 4, right=True), lambda one: number(one.record.released)),
    Show(Column("abandoned", 4, right=True), lambda one: number(one.record.abandoned)),
)


@command(
    examples="""
    headrace nodes
    headrace nodes --namespace shop --json
    """,
)
def nodes(json: Json = False, *, where: InNamespace) -> None:
    """Show registered nodes, whether they are alive, and event types without a live node."""
    with where.opened() as source:
        found, unhandled = source.nodes(), source.unhandled_types()
    if json:
        print_json(found)
        return
    if found:
        print_table(NODES, found)
    else:
        say(f"No node is registered in {clean(where.namespace)}.")
    for one in unhandled:
        remark(_unhandled(one), style="yellow")


def _life(node: NodeInfo) -> str:
    return "alive" if node.alive else "stopped" if node.stopped_at else "gone"


def _unhandled(one: UnhandledType) -> str:
    waiting = count(one.deliveries, "event")
    verb = "waits" if one.deliveries == 1 else "wait"
    oldest = times.length((datetime.now(UTC) - one.oldest_at).total_seconds())
    return f"No live node handles {clean(one.type)}: {waiting} {verb} in {clean(one.queue)}, for {oldest}."


@command(
    examples="""
    headrace workers
    headrace workers --queue billing --period 1h
    """,
)
def workers(period: Period = timedelta(minutes=5), json: Json = False, *, where: AllQueues) -> None:
    """Show workers that were active recently, over HTTP and SQL too. Workers need not register."""
    with where.each() as queues:
        found = [
            InQueue(name, worker)
            for name, queue in queues.items()
            for worker in queue.workers(period)
        ]
    if json:
        print_json([one.line(where.namespace) for one in found])
    elif found:
        print_table(WORKERS, found)
    else:
        say(f"No worker was active in {clean(where.namespace)} in the last {times.length(period)}.")
