"""Whether the server is alive, and whether it is of use."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from headrace.server.failures import Refusal
from headrace.server.operations import Call, Operation, Query, answer


class Health(msgspec.Struct, frozen=True):
    """How the server is."""

    status: str


async def alive(call: Call) -> Response:
    """Whether this process answers, whatever the database does: restart it when it does not."""
    return answer(Health("ok"))


async def ready(call: Call) -> Response:
    """Whether requests can be served: the database commits, as was seen within the last second, its schema is one this
    release can work with, and the server is not stopping. Else 503."""
    if call.services.stopping.is_set():
        raise _not_ready("stopping", "The server is stopping.")
    trouble = await call.services.directory.readiness.trouble()
    if trouble is not None:
        raise _not_ready(*trouble)
    return answer(Health("ready"))


def _not_ready(code: str, sentence: str) -> Refusal:
    return Refusal(503, code, sentence, headers={"Retry-After": "1"})


OPERATIONS = (
    Operation("GET", "/healthz", alive, None, Query, answers={200: Health}),
    Operation("GET", "/readyz", ready, None, Query, answers={200: Health}),
)
