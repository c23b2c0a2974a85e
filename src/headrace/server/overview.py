"""What somebody who looks is told first: how a queue fared, what needs attention, who he is here."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

import msgspec
from msgspec import UNSET
from starlette.responses import Response

from headrace import statements
from headrace.attention import Finding
from headrace.model import Point
from headrace.server.description import release
from headrace.server.operations import Call, Caller, InQueue, Operation, Query, answer
from headrace.server.queues import Object
from headrace.server.wire import Absent, moment, moment_or_none, told

RANGES = {
    "15m": timedelta(minutes=15),
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
}


class Ranged(InQueue, frozen=True, kw_only=True):
    range: Literal["15m", "1h", "6h", "24h", "7d"] = "1h"


class PointBody(msgspec.Struct, frozen=True, kw_only=True):
    """How a queue fared in one step."""

    at: str
    """Where the step begins."""
    seconds: float
    """How much of it is over: what was counted is of so long a time. Less than the step in the last point."""
    depth: int | None
    """The most that was seen to wait; null: nobody looked."""
    oldest_age: float | None
    """Seconds since what waits was published, at most."""
    published: int
    completed: int
    failed: int
    """Attempts that failed or were abandoned."""
    retried: int
    dead: int
    wait_p50: float | None
    """Seconds from publishing to the first claim; half of those that ended in this step took less. Null: none did."""
    wait_p95: float | None
    wait_p99: float | None
    run_p50: float | None
    """Seconds from a claim to its end."""
    run_p95: float | None
    run_p99: float | None


class HistoryBody(msgspec.Struct, frozen=True, rename={"since": "from", "until": "to"}):
    """How a queue fared, step by step, the oldest first, without gaps."""

    namespace: str
    queue: str
    since: str
    until: str
    step: int
    """Seconds."""
    points: list[PointBody]


async def history(call: Call) -> Response:
    """How a queue fared, for charts: at most 180 points, a step of `step` seconds each. It is looked at every five seconds, by
    whoever does the upkeep."""
    found = await call.client.history(RANGES[call.query.range])
    last = found.points[-1]
    return answer(
        HistoryBody(
            call.namespace,
            call.queue,
            moment(found.points[0].at),
            moment(last.at + timedelta(seconds=last.seconds)),
            found.step,
            [_point(point) for point in found.points],
        )
    )


def _point(point: Point) -> PointBody:
    return told(PointBody, point)


class InSight(Query, frozen=True, kw_only=True):
    namespace: str | None = None
    """Without one: all that the token may see."""


class FindingBody(msgspec.Struct, frozen=True, kw_only=True):
    """Something that somebody should look at."""

    code: str
    """Which kind it is: this does not change."""
    level: Literal["critical", "warning", "notice"]
    """critical: something does not work; warning: it soon may not; notice: somebody should know."""
    sentence: str
    namespace: str | None
    """Null: it is about the whole installation."""
    queue: str | Absent = UNSET
    about: Object
    """Numbers and names that belong to it."""
    since: str | Absent = UNSET


class Findings(msgspec.Struct, frozen=True):
    """What needs somebody's attention, what is worst first."""

    findings: list[FindingBody]


async def attention(call: Call) -> Response:
    """What needs somebody's attention now, in words, what is worst first: a hundred findings at most."""
    seen = call.caller.namespaces
    if call.query.namespace is None and seen is not None:
        # By the database, before anything is looked at or cut: a neighbour's thousand findings are none here.
        statement = statements.attention_in(sorted(seen))
        found = await call.services.directory.ask(statement, lane="look")
    else:
        found = await call.client.attention(everywhere=call.query.namespace is None)
    return answer(Findings([_finding(one) for one in found if _may_know(call.caller, one)]))


def _may_know(caller: Caller, one: Finding) -> bool:
    if one.code == "lock_in_the_way":  # it names a session, which may be another tenant's
        return caller.namespaces is None
    return one.namespace is None or caller.may_see(one.namespace)


def _finding(one: Finding) -> FindingBody:
    return FindingBody(
        code=one.code,
        level=one.level,
        sentence=one.sentence,
        namespace=one.namespace,
        queue=one.queue or UNSET,
        about=dict(one.about),
        since=moment_or_none(one.since) or UNSET,
    )


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, and what he may do."""

    open: bool
    """Nobody is asked for a token here."""
    name: str
    """As it is in the logs: the token's, or where the request comes from."""
    scopes: list[str]
    namespaces: list[str] | None
    """Those he may know of; null: all."""
    version: str
    """Of the server."""


async def whoami(call: Call) -> Response:
    """Who asks, and what he may do: any token will do that is good for something."""
    caller = call.caller
    return answer(
        Identity(
            open=caller.is_anybody,
            name=caller.name,
            scopes=sorted(caller.scopes),
            namespaces=None if caller.namespaces is None else sorted(caller.namespaces),
            version=release(),
        )
    )


OPERATIONS = (
    Operation("GET", "/history", history, "read", Ranged, answers={200: HistoryBody}),
    Operation("GET", "/attention", attention, "read", InSight, answers={200: Findings}),
    Operation("GET", "/whoami", whoami, "any", Query, answers={200: Identity}),
)
