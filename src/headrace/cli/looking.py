"""`headrace stats`, `attention`, `nodes`, `workers`, `admin-log`: how it is going, who is working, who did what."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, NamedTuple

import msgspec
import typer
from rich.text import Text

from headrace.cli import options, times
from headrace.cli.help import described
from headrace.cli.options import AnyQueue, Data, Dsn, Json, Namespace, Period
from headrace.cli.showing import (
    Column,
    Show,
    clean,
    count,
    json_line,
    listed,
    number,
    print_json,
    print_table,
    remark,
    say,
    say_wrapped,
    state,
)
from headrace.cli.source import connected, opened, prepared, queue_over
from headrace.model import AdminAction, NodeInfo, Stats, UnhandledType

PANEL = "What is going on"
FIVE_MINUTES = timedelta(minutes=5)
LEVELS = {"critical": "bold red", "warning": "yellow", "notice": "cyan"}


class InQueue(NamedTuple):
    """What was found in a queue."""

    queue: str
    found: Any

    def record(self) -> dict[str, Any]:
        return {"queue": self.queue, **msgspec.structs.asdict(self.found)}


STATS = (
    Show(Column("queue", 0, 8), lambda one: one.queue),
    Show(Column("ready", 1, right=True), lambda one: number(one.found.ready)),
    Show(Column("delayed", 2, right=True), lambda one: number(one.found.delayed)),
    Show(Column("in work", 1, right=True), lambda one: number(one.found.processing)),
    Show(Column("dead", 1, right=True), lambda one: _dead(one.found)),
    Show(Column("oldest", 2, right=True), lambda one: times.ago(one.found.oldest_ready_at)),
    Show(Column("published", 3, right=True), lambda one: number(one.found.published)),
    Show(Column("completed", 3, right=True), lambda one: number(one.found.completed)),
    Show(Column("failed", 3, right=True), lambda one: number(one.found.failed)),
    Show(Column("abandoned", 5, right=True), lambda one: number(one.found.abandoned)),
    Show(Column("died", 4, right=True), lambda one: number(one.found.dead_lettered)),
    Show(Column("average", 4, right=True), lambda one: _average(one.found)),
)
WORKERS = (
    Show(Column("worker", 0, 12), lambda one: one.found.worker_id),
    Show(Column("queue", 2, 8), lambda one: one.queue),
    Show(Column("holds", 1, right=True), lambda one: number(one.found.holds)),
    Show(Column("lease ends", 3, right=True), lambda one: times.ago(one.found.lease_expires_at)),
    Show(Column("last seen", 1, right=True), lambda one: times.ago(one.found.last_seen_at)),
    Show(Column("completed", 2, right=True), lambda one: number(one.found.completed)),
    Show(Column("failed", 2, right=True), lambda one: number(one.found.failed)),
    Show(Column("released", 4, right=True), lambda one: number(one.found.released)),
    Show(Column("abandoned", 4, right=True), lambda one: number(one.found.abandoned)),
)
NODES = (
    Show(Column("node", 0, 12), lambda node: node.node_id),
    Show(Column("state", 1), lambda node: state(_life(node))),
    Show(Column("heartbeat", 2, right=True), lambda node: times.ago(node.last_heartbeat)),
    Show(Column("handles", 2, 16), lambda node: listed(node.handles, "nothing")),
    Show(Column("worker", 4, 12), lambda node: node.worker_id),
    Show(Column("since", 5, right=True), lambda node: times.ago(node.started_at)),
    Show(Column("name", 6, 10), lambda node: node.display_name or "–"),
)
ACTIONS = (
    Show(Column("id", 2, right=True), lambda one: str(one.id)),
    Show(Column("at", 1), lambda one: times.exact(one.created_at)),
    Show(Column("ago", 4, right=True), lambda one: times.ago(one.created_at)),
    Show(Column("action", 0), lambda one: one.action),
    Show(Column("target", 1, 10), lambda one: one.target or "–"),
    Show(Column("by", 1, 10), lambda one: one.actor),
    Show(Column("namespace", 3, 8), lambda one: one.namespace or "–"),
    Show(Column("details", 5, 16), lambda one: _details(one)),
)


def register(app: typer.Typer) -> None:
    described(
        app,
        panel=PANEL,
        examples="""
        headrace stats
        headrace stats --queue billing --period 1h
        headrace stats --json | jq 'select(.dead_letters > 0)'
        """,
    )(stats)
    described(
        app,
        panel=PANEL,
        examples="""
        headrace attention
        headrace attention --everywhere --json | jq 'select(.level == "critical")'
        """,
    )(attention)
    described(
        app,
        panel=PANEL,
        examples="""
        headrace nodes
        headrace nodes --namespace shop --json
        """,
    )(nodes)
    described(
        app,
        panel=PANEL,
        examples="""
        headrace workers
        headrace workers --queue billing --period 1h
        """,
    )(workers)
    described(
        app,
        "admin-log",
        panel=PANEL,
        examples="""
        headrace admin-log
        headrace admin-log --everywhere --limit 100
        """,
    )(admin_log)


def stats(
    period: Period = FIVE_MINUTES,
    json: Json = False,
    namespace: Namespace = "default",
    queue: AnyQueue = None,
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Show what stands where in the queues of a namespace, and what happened lately."""
    with prepared(dsn, data) as where, connected(where) as connection:
        names = _queues(queue_over(connection, namespace, "main"), queue)
        found = [
            InQueue(name, queue_over(connection, namespace, name).stats(period)) for name in names
        ]
    if json:
        print_json([{"namespace": namespace, **one.record()} for one in found])
        return
    print_table(STATS, found)
    remark(f"What was published, completed and so on is of the last {times.length(period)}.")
    if not all(one.found.is_exact for one in found):
        remark("What stands where was estimated: it is more than 100,000 somewhere.")


def _queues(source: Any, named: str | None) -> list[str]:
    if named is not None:
        return [source.queue(named).name]
    return [one.name for one in source.queues()]


def _dead(stats: Stats) -> Text:
    return Text(number(stats.dead_letters), style="red" if stats.dead_letters else "")


def _average(stats: Stats) -> str:
    return "–" if stats.average_ms is None else times.length(stats.average_ms / 1000)


def attention(
    everywhere: Annotated[bool, typer.Option("--everywhere", help="In all namespaces.")] = False,
    json: Json = False,
    namespace: Namespace = "default",
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Say what needs somebody's attention now, in words, what is worst first."""
    with opened(dsn, data, namespace) as source:
        found = source.attention(everywhere=everywhere)
    if json:
        print_json([{**msgspec.structs.asdict(one), "sentence": one.sentence} for one in found])
        return
    for one in found:
        line = Text(one.level.ljust(8), style=LEVELS[one.level])
        where = "" if one.namespace in (None, namespace) else f"{clean(one.namespace)}: "
        since = (
            ""
            if one.since is None
            else f" (since {times.exact(one.since)}, {times.ago(one.since)})"
        )
        line.append(f"  {where}{clean(one.sentence)}", style="not bold default")
        line.append(since, style="not bold dim")
        say_wrapped(line, 10)
    if not found:
        say("Nothing needs attention.")


def workers(
    period: Period = FIVE_MINUTES,
    json: Json = False,
    namespace: Namespace = "default",
    queue: AnyQueue = None,
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Show who has claims or has ended attempts lately, over HTTP too. Nobody registers for it."""
    with prepared(dsn, data) as where, connected(where) as connection:
        found = [
            InQueue(name, worker)
            for name in _queues(queue_over(connection, namespace, "main"), queue)
            for worker in queue_over(connection, namespace, name).workers(period)
        ]
    if json:
        print_json([{"namespace": namespace, **one.record()} for one in found])
    elif found:
        print_table(WORKERS, found)
    else:
        say(f"Nobody has worked in {clean(namespace)} in the last {times.length(period)}.")


def nodes(
    json: Json = False,
    namespace: Namespace = "default",
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Show the nodes that have registered, whether they are alive, and what no live node handles."""
    with prepared(dsn, data) as where, connected(where) as connection:
        source = queue_over(connection, namespace, "main")
        found, unhandled = source.nodes(), source.unhandled_types()
    if json:
        print_json(found)
        return
    if found:
        print_table(NODES, found)
    else:
        say(f"No node has registered in {clean(namespace)}.")
    for one in unhandled:
        remark(_unhandled(one), style="yellow")


def _life(node: NodeInfo) -> str:
    return "alive" if node.alive else "stopped" if node.stopped_at else "gone"


def _unhandled(one: UnhandledType) -> str:
    waiting = count(one.deliveries, "event")
    verb = "waits" if one.deliveries == 1 else "wait"
    oldest = times.length((datetime.now(UTC) - one.oldest_at).total_seconds())
    return f"No live node handles {clean(one.type)}: {waiting} {verb} in {clean(one.queue)}, for {oldest}."


def admin_log(
    everywhere: Annotated[
        bool, typer.Option("--everywhere", help="In all namespaces, and what concerns them all.")
    ] = False,
    limit: options.Limit = 20,
    before: Annotated[
        int | None,
        typer.Option(metavar="ID", help="Page on: only what is older.", show_default=False),
    ] = None,
    json: Json = False,
    namespace: Namespace = "default",
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Show what was done on purpose, and by whom: paused, created, changed, cancelled, redriven …"""
    with prepared(dsn, data) as where, connected(where) as connection:
        source = queue_over(connection, namespace, "main")
        found = source.admin_log(everywhere=everywhere, limit=limit, before=before)
    if json:
        print_json(found)
    elif found:
        print_table(ACTIONS, found)
    else:
        say("Nothing was done yet.")


def _details(action: AdminAction) -> str:
    return json_line(dict(action.details)) if action.details else "–"
