"""What sessions wait for that publish in transactions of their own, many at a time, with a node at work or without one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing, contextmanager
from typing import Any

import psycopg

from bench.machine import machine
from bench.measure import Meter
from bench.payloads import TYPE
from bench.scaling.costs import Costs, metered
from bench.scaling.figure import Case, Notes, Setting
from bench.scaling.programs import Program

ROUNDS = 3
CONNECTIONS = (1, 8, 32)
OWN_WORK = 0.006  # seconds: what a web request's transaction does besides
LOOK_EVERY = 0.01
NAME = "headrace bench contention"
SERIES = {
    "as it is": ("on", False),
    "without notifications": ("off", False),
    "as it is, a node works": ("on", True),
    "without notifications, a node works": ("off", True),
}
"""For each the value of headrace.notify, and whether a node takes what is published."""
GOAL = 0.95  # times the commits without notifications

# One message, so that a client's turn-around is not measured.
TRANSACTION = """
begin;
set local headrace.notify = '{notify}';
select pg_sleep({own_work});
select id from headrace.publish_one('default', '{type}', '{{"order": 1}}');
commit"""
# A transaction's own work is a sleep here.
WAITS = """
select coalesce(wait_event_type || ': ' || wait_event, 'running') from pg_stat_activity
where application_name = %s and datname = current_database() and state = 'active'
  and wait_event is distinct from 'PgSleep'"""


def cases() -> list[Case]:
    return [Case("contention", "Transactions that publish", "connections", contention)]


def contention(setting: Setting, notes: Notes) -> dict[str, Any]:
    seconds = setting.choose(5, 1)
    waits: dict[str, Counter[str]] = {series: Counter() for series in SERIES}
    with setting.server() as server, closing(Meter(server.dsn)) as meter:
        for _ in range(setting.choose(ROUNDS, 1)):
            for count in CONNECTIONS:
                for series, (notify, works) in SERIES.items():
                    with server.database() as dsn, _node(dsn, works):
                        found, seen = committed(dsn, meter, count, seconds, notify)
                    notes.note(series, count, **found, waiting_percent=waiting(seen))
                    if count == CONNECTIONS[-1]:
                        waits[series] += seen
        _find(notes, waits)
        return machine(server)


@contextmanager
def _node(dsn: str, works: bool) -> Iterator[None]:
    if not works:
        yield
        return
    with Program("ours", dsn, "work", "async") as node:
        node.hear("ready")
        node.tell("go")
        node.hear("started")
        yield


def committed(
    dsn: str, meter: Meter, connections: int, seconds: float, notify: str
) -> tuple[Costs, Counter[str]]:
    """What a transaction costs, and what its sessions were seen to do, their own work left out."""
    commits, seen = 0, Counter[str]()

    def publish() -> None:
        nonlocal commits, seen
        commits, seen = asyncio.run(_publish(dsn, connections, seconds, notify))

    found = metered(meter, 1, publish)
    rate = found.pop("rate")
    assert rate is not None
    each = {name: None if used is None else used / commits for name, used in found.items()}
    return {"rate": rate * commits, **each}, seen


async def _publish(
    dsn: str, connections: int, seconds: float, notify: str
) -> tuple[int, Counter[str]]:
    statement = TRANSACTION.format(notify=notify, own_work=OWN_WORK, type=TYPE)
    connect = psycopg.AsyncConnection.connect
    async with AsyncExitStack() as opened:
        sessions = [
            await opened.enter_async_context(
                await connect(dsn, autocommit=True, application_name=NAME)
            )
            for _ in range(connections)
        ]
        for session in sessions:  # its first one plans and compiles
            await session.execute(statement)
        admin = await opened.enter_async_context(await connect(dsn, autocommit=True))
        until = asyncio.get_running_loop().time() + seconds
        counts = asyncio.gather(*(_commit(session, statement, until) for session in sessions))
        seen = await _look(admin, until)
        return sum(await counts), seen


async def _commit(session: psycopg.AsyncConnection[Any], statement: str, until: float) -> int:
    count = 0
    while asyncio.get_running_loop().time() < until:
        await session.execute(statement)
        count += 1
    return count


async def _look(admin: psycopg.AsyncConnection[Any], until: float) -> Counter[str]:
    seen: Counter[str] = Counter()
    while asyncio.get_running_loop().time() < until:
        rows = await (await admin.execute(WAITS, [NAME])).fetchall()
        seen.update(event for (event,) in rows)
        await asyncio.sleep(LOOK_EVERY)
    return seen


def waiting(seen: Counter[str]) -> float:
    """Of the time in which they did not do their own work, the part spent waiting for each other or the disk."""
    total = seen.total()
    return 100 * (total - seen["running"]) / total if total else 0.0


def _find(notes: Notes, waits: dict[str, Counter[str]]) -> None:
    most = CONNECTIONS[-1]
    for series, seen in waits.items():
        total = seen.total() or 1
        told = ", ".join(f"{event} {100 * n / total:.0f} %" for event, n in seen.most_common(5))
        notes.find(f"Sessions at {most} connections, {series}", told)
    names = list(SERIES)
    for told, silent in zip(names[::2], names[1::2], strict=True):
        ratio = notes.medians(told, "rate")[most] / notes.medians(silent, "rate")[most]
        notes.find(
            f"Commits at {most} connections {told}, against the same without notifications",
            f"{ratio:.2f} ×, at least {GOAL}",
            ratio >= GOAL,
        )
