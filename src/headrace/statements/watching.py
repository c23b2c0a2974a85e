"""Watching: how a queue fared, what needs attention, what an event has to do with."""

from __future__ import annotations

from typing import LiteralString

from headrace.arguments import interval
from headrace.attention import Finding
from headrace.model import Duration, Event, History, Point, instant, told
from headrace.statements.base import Row, Statement, instant_or_none, timed
from headrace.statements.looking import SELECT_EVENTS, read_event
from headrace.stories import RELATIVES, Relative


def history(namespace: str, queue: str, period: Duration) -> Statement[History]:
    def read(rows: list[Row]) -> History:
        return History(rows[0][0], [Point(*timed(row[1:], 0)) for row in rows])

    return Statement(
        "select step, pg_catalog.timestamptz_send(at), seconds, depth, oldest_age, published, completed, failed, "
        "retried, dead, wait_p50, wait_p95, wait_p99, run_p50, run_p95, run_p99 "
        "from headrace.history(%s, %s, %s::interval)",
        (namespace, queue, interval(period, "period")),
        read,
    )


def attention(namespace: str | None) -> Statement[list[Finding]]:
    """None: everywhere."""
    return _attention("headrace.attention(%s)", namespace)


def attention_in(namespaces: list[str]) -> Statement[list[Finding]]:
    return _attention("headrace.attention_in(%s::pg_catalog.text[])", namespaces)


def _attention(source: LiteralString, where: str | list[str] | None) -> Statement[list[Finding]]:
    return Statement(
        "select code, level, namespace, queue, about::pg_catalog.text, pg_catalog.timestamptz_send(since) "
        f"from {source}",
        (where,),
        lambda rows: [
            Finding(code, level, space, queue, told(about), instant_or_none(since))
            for code, level, space, queue, about, since in rows
        ],
    )


def lineage(namespace: str, queue: str, event_id: int) -> Statement[dict[str, list[Relative]]]:
    """The events that one has to do with, by how."""

    def read(rows: list[Row]) -> dict[str, list[Relative]]:
        found: dict[str, list[Relative]] = {}
        for relation, id, type, status, created_at in rows:
            one = Relative(id, type, status, instant(created_at))
            found.setdefault(relation, []).append(one)
        return found

    return Statement(
        "select relation, id, type, status, pg_catalog.timestamptz_send(created_at) "
        "from headrace.lineage(%s, %s::bigint, %s, %s::int)",
        (namespace, event_id, queue, RELATIVES),
        read,
    )


def find_events(
    namespace: str, queue: str, word: str, limit: int, payload: bool
) -> Statement[list[Event]]:
    return Statement(
        f"{SELECT_EVENTS}find_events(%s, %s, %s, %s::int, %s::boolean)",
        (namespace, word, queue, limit, payload),
        lambda rows: [read_event(namespace, row) for row in rows],
    )
