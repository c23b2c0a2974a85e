"""The overview: the history of a queue, its problems, and the identity of the caller."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

import msgspec
from msgspec import UNSET
from starlette.responses import Response

from headrace.engine import observe, shard_replies
from headrace.model import Point
from headrace.model.attention import Finding
from headrace.server.api.values import Absent, Object, moment, moment_or_none, shape_of, told
from headrace.server.http.openapi import release
from headrace.server.http.operation import AdmittedClient, Call, InQueue, Operation, Query, answer

RANGES = {
    "15m": timedelta(minutes=15),
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
}


class Ranged(InQueue, frozen=True, kw_only=True):
    range: Literal["15m", "1h", "6h", "24h", "7d"] = "1h"


class PointBody(shape_of(Point)):  # type: ignore[misc]
    """One step in the history of a queue."""


class HistoryBody(msgspec.Struct, frozen=True, rename={"since": "from", "until": "to"}):
    """The history of a queue, step by step, the oldest first, without gaps."""

    namespace: str
    queue: str
    since: str
    until: str
    step: int
    """Seconds."""
    points: list[PointBody]


async def history(call: Call) -> Response:
    """The history of a queue, for charts: at most 180 points of `step` seconds each. The process
    that does the upkeep takes a sample every five seconds."""
    found = await call.client.history(RANGES[call.query.range])
    last = found.points[-1]
    return answer(
        HistoryBody(
            call.namespace,
            call.queue,
            moment(found.points[0].at),
            moment(last.at + timedelta(seconds=last.seconds)),
            found.step,
            [told(PointBody, point) for point in found.points],
        )
    )


class InSight(Query, frozen=True, kw_only=True):
    namespace: str | None = None
    """Default: all namespaces that the token may see."""


class FindingBody(msgspec.Struct, frozen=True, kw_only=True):
    """A problem that an operator should look at."""

    code: str
    """The kind of problem: a stable name."""
    level: Literal["critical", "warning", "notice"]
    """critical: something does not work; warning: something may stop soon; notice: good to know."""
    sentence: str
    namespace: str | None
    """Null: the whole installation."""
    queue: str | Absent = UNSET
    about: Object
    """The numbers and names in the sentence."""
    since: str | Absent = UNSET


class Findings(msgspec.Struct, frozen=True):
    """Problems, the worst first."""

    findings: list[FindingBody]


async def attention(call: Call) -> Response:
    """Problems that need attention now, the worst first, in words: at most 100."""
    seen = call.caller.namespaces
    if call.query.namespace is None and seen is not None:
        # The database filters, before it looks and before it cuts the list: a thousand findings of
        # other namespaces leave no gap here.
        statement = observe.attention_in(sorted(seen))
        found = await call.services.directory.everywhere(
            statement, shard_replies.findings, lane="look"
        )
    else:
        found = await call.client.attention(everywhere=call.query.namespace is None)
    return answer(Findings([_finding(one) for one in found if _may_know(call.caller, one)]))


def _may_know(caller: AdmittedClient, one: Finding) -> bool:
    if one.code == "lock_in_the_way":  # it names a session, perhaps of another tenant
        return caller.namespaces is None
    return one.namespace is None or caller.may_see(one.namespace)


def _finding(one: Finding) -> FindingBody:
    return told(
        FindingBody,
        one,
        queue=one.queue or UNSET,
        about=dict(one.about),
        since=moment_or_none(one.since) or UNSET,
    )


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The caller, and what it may do."""

    open: bool
    """The server requires no token."""
    name: str
    """The name in the logs: that of the token, or the address of the client."""
    scopes: list[str]
    namespaces: list[str] | None
    """The namespaces that the token may see; null: all."""
    version: str
    """Of the server."""


async def whoami(call: Call) -> Response:
    """The caller, and what it may do. Every valid token may ask."""
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
