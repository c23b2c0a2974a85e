"""Events are reset, run again, cancelled and erased."""

from __future__ import annotations

from starlette.responses import Response

from headrace.server.api.shapes import (
    EventBody,
    event_body,
)
from headrace.server.http.operation import (
    Call,
    InQueue,
    Operation,
    answer,
)


class Reasoned(InQueue, frozen=True, kw_only=True):
    reason: str = ""
    """Why; it is written to the log."""


async def reset_event(call: Call) -> Response:
    """Make an event ready now. A worker that holds it loses its claim, a delay ends, and a dead
    letter is retried."""
    reason, id = call.query.reason, call.event_id
    return answer(event_body(await call.client.reset(id, reason=reason, actor=call.actor)))


async def rerun_event(call: Call) -> Response:
    """Deliver an event again that is completed or cancelled: ready now, from the beginning, with its
    log kept. 409 if it is unfinished, a dead letter, or erased."""
    reason, id = call.query.reason, call.event_id
    return answer(event_body(await call.client.rerun(id, reason=reason, actor=call.actor)))


async def cancel_event(call: Call) -> Response:
    """Cancel an event for good, even if it is in progress."""
    reason, id = call.query.reason, call.event_id
    return answer(event_body(await call.client.cancel(id, reason=reason, actor=call.actor)))


async def erase_event(call: Call) -> Response:
    """Erase the data of an event for good: its payload, its description, the texts of its errors,
    its dead letters. Unfinished deliveries are cancelled first, in all queues; the log entries
    stay."""
    await call.client.erase(call.event_id, reason=call.query.reason, actor=call.actor)
    return Response(status_code=204)


OPERATIONS = (
    Operation(
        *("POST", "/events/{id}/reset", reset_event, "admin", Reasoned),
        answers={200: EventBody},
    ),
    Operation(
        *("POST", "/events/{id}/rerun", rerun_event, "admin", Reasoned),
        answers={200: EventBody},
    ),
    Operation(
        *("POST", "/events/{id}/cancel", cancel_event, "admin", Reasoned),
        answers={200: EventBody},
    ),
    Operation(
        *("POST", "/events/{id}/erase", erase_event, "admin", Reasoned),
        answers={204: None},
    ),
)
