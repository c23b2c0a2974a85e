"""Many publishers of one debounce key, and a node: how often it starts, what runs last, what became of the others."""

import asyncio
import threading
import time
from itertools import pairwise
from statistics import median
from typing import Any

import psycopg

import headrace
from tests.laboratory.accounting import Accounts

KEY, TYPE = "a document", "document.changed"
SLACK = 2.0  # seconds for which a due event may wait for a tick and a claim on a busy machine
EARLY = 0.25  # seconds between the clock's readings of a publish and of a claim that do not see each other
STARTS = """
select extract(epoch from l.created_at)::float8, l.event_id
from headrace.event_log l where l.action = 'PICKED' order by l.id
"""
SUPERSEDED = "select event_id, superseded_by from headrace.event_log where action = 'SUPERSEDED'"
PUBLISHED = "select id, extract(epoch from created_at)::float8 from headrace.events order by id"


def measure(
    dsn: str, *, publishers: int, seconds: float, settle: float, at_latest: float, pause: float
) -> Accounts:
    """What is not as it is promised, and figures."""
    began: list[Any] = []
    stop = threading.Event()
    threads = [
        threading.Thread(target=_publish, args=(dsn, n, settle, at_latest, pause, stop))
        for n in range(publishers)
    ]
    with _Node(dsn, began), headrace.connect(dsn) as queue:
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        stop.set()
        for thread in threads:
            thread.join()
        last = queue.publish(TYPE, "last", debounce=KEY, settle=settle, at_latest=at_latest)
        deadline = time.monotonic() + at_latest + 60
        while queue.event(last.id).status != "COMPLETED" and time.monotonic() < deadline:
            time.sleep(0.05)
    return _accounts(dsn, began, settle, at_latest)


def _publish(
    dsn: str, number: int, settle: float, at_latest: float, pause: float, stop: threading.Event
) -> None:
    with headrace.connect(dsn, pool_size=1) as queue:
        n = 0
        while not stop.wait(pause):
            n += 1
            queue.publish(TYPE, [number, n], debounce=KEY, settle=settle, at_latest=at_latest)


class _Node:
    """Runs beside the publishers, in a thread with a loop of its own."""

    def __init__(self, dsn: str, began: list[Any]) -> None:
        self._node = headrace.Node("debounce", dsn=dsn, idle=0.05)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

        @self._node.on_event(TYPE)
        async def handle(event: headrace.Claimed) -> None:
            began.append(event.payload)

    async def _run(self) -> None:
        async with self._node:
            await asyncio.to_thread(self._stopped.wait)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._stopped.set()
        self._thread.join()


def _accounts(dsn: str, began: list[Any], settle: float, at_latest: float) -> Accounts:
    accounts = Accounts()
    with psycopg.connect(dsn) as session:
        starts = session.execute(STARTS).fetchall()
        by = dict(session.execute(SUPERSEDED).fetchall())
        published = dict(session.execute(PUBLISHED).fetchall())
    started = {event for _, event in starts}
    gaps = [after - before for (before, _), (after, _) in pairwise(starts)]
    accounts.figures = {
        "published": len(published),
        "superseded": len(by),
        "started": len(starts),
        "shortest between two starts, s": round(min(gaps, default=0), 2),
        "median between two starts, s": round(median(gaps or [0]), 2),
        "longest between two starts, s": round(max(gaps, default=0), 2),
    }
    accounts.must_not_be("starts sooner than settle", [g for g in gaps if g < settle - EARLY])
    accounts.must_not_be("starts later than at_latest", [g for g in gaps if g > at_latest + SLACK])
    accounts.must_not_be(
        "last payloads that did not run last",
        [*map(str, began[-3:])] if began[-1:] != ["last"] else [],
    )
    accounts.must_not_be(
        "events that neither ran nor were superseded", published.keys() - started - by.keys()
    )
    accounts.must_not_be("events that ran and were superseded", started & by.keys())
    accounts.must_not_be("superseded by what is no event", by.values() - published.keys())
    accounts.must_not_be(
        "superseded events that lead to none that ran",
        [event for event in by if _successor(event, by) not in started],
    )
    return accounts


def _successor(event: int, by: dict[int, int]) -> int | None:
    """The event at the end of the row; None: it goes round."""
    for _ in range(len(by) + 1):
        if event not in by:
            return event
        event = by[event]
    return None
