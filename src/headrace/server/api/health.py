"""Liveness and readiness of the server."""

from __future__ import annotations

import msgspec
from msgspec import UNSET
from starlette.responses import Response

from headrace.server.api.values import Absent
from headrace.server.http.operation import (
    Call,
    Operation,
    Query,
    answer,
)
from headrace.server.http.refusal import Refusal


class Health(msgspec.Struct, frozen=True):
    """The health of the server."""

    status: str
    without: list[str] | Absent = UNSET
    """Of several shards, those that do not answer or do not commit, and why."""


async def alive(call: Call) -> Response:
    """Whether this process answers, whatever the state of the database: if not, restart it."""
    return answer(Health("ok"))


async def ready(call: Call) -> Response:
    """Whether the server can serve requests: the database has committed within the last second,
    this release supports its schema, and the server is not stopping. Else 503. Over several shards:
    whether one of them can be used; `without` names the others."""
    if call.services.stopping.is_set():
        raise _not_ready("stopping", "The server is stopping.")
    trouble = await call.services.directory.readiness.trouble()
    if trouble is not None:
        raise _not_ready(*trouble)
    directory = call.services.directory
    without = await directory.readiness.without() if directory.over_shards else []
    return answer(Health("ready", without or UNSET))


def _not_ready(code: str, sentence: str) -> Refusal:
    return Refusal(503, code, sentence, headers={"Retry-After": "1"})


OPERATIONS = (
    Operation("GET", "/healthz", alive, None, Query, answers={200: Health}),
    Operation("GET", "/readyz", ready, None, Query, answers={200: Health}),
)
