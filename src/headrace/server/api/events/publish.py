"""Events are published: one, or a batch."""

from __future__ import annotations

import asyncio
import re
from decimal import Decimal

import msgspec
from msgspec import UNSET
from msgspec.structs import replace
from starlette.responses import Response

from headrace.errors import InvalidInput
from headrace.model import Event, NewEvent, Queue
from headrace.model.patterns import matches
from headrace.server.api import cloudevents
from headrace.server.api.shapes import (
    EventBody,
    NewEventBody,
    event_body,
)
from headrace.server.api.values import Absent
from headrace.server.http.operation import (
    NO_STORE,
    Call,
    Operation,
    answer,
    location,
)
from headrace.server.http.refusal import Refusal
from headrace.telemetry import tracing

BESIDES = 64 * 1024  # bytes of a body besides its payload
LONGEST_NUMBER = 1000  # digits
BATCH_BODY = 16 * 1024 * 1024
SLICE = 100  # events of a batch that are decoded before other requests have a turn
HEADERS = {
    "Idempotency-Key": "Repeating the request with this key gives the same events; the "
    "idempotency_key of an event has precedence.",
    "traceparent": "The trace of the request (W3C Trace Context); the handler of the event "
    "continues it.",
}


async def publish_event(call: Call) -> Response:
    """Publish an event. It is stored durably when the answer is 201. With an `Idempotency-Key`,
    repeating the request gives the same event."""
    directory = call.services.directory
    queue = await directory.settings(call.namespace, call.queue)
    with tracing.publishing(_new_event(call), _trace(call)) as new:
        published = await directory.publish(call.namespace, new)
    headers = {**NO_STORE, **location(call, f"/events/{published.id}")}
    if published.repeated:
        headers["Idempotency-Replayed"] = "true"
    if published.status is None:
        pressure = published.pressure
        published = replace(await call.client.event(published.id), pressure=pressure)
    else:
        published = await _as_stored(call, published)
        if not _is_taken(published, queue):
            published = replace(published, status=None)
    return answer(event_body(published, queue.max_retries), 201, headers)


async def _as_stored(call: Call, event: Event) -> Event:
    """The event with its payload as `GET /events/{id}` shows it, but for the order of keys:
    PostgreSQL keeps the last value of a key that was sent twice, and writes numbers without
    exponents."""
    decode = _decode_numbers if _REWRITTEN.search(event.payload) else msgspec.json.decode
    try:
        return replace(event, payload=decode(event.payload))
    except (ValueError, RecursionError):
        return replace(event, payload=(await call.client.event(event.id)).payload)


# Matches every number that PostgreSQL writes in another way; it may match a string, too.
_REWRITTEN = re.compile(rb"\d[eE][+-]?\d|-0")


def _stored_number(text: str) -> int | float:
    """A number with a point or an exponent, as PostgreSQL writes it."""
    exact = Decimal(text)
    if abs(exact.adjusted()) > LONGEST_NUMBER:
        raise ValueError("the number has too many digits to be written out")
    number: int | float = msgspec.json.decode(format(exact, "f"))
    return number or abs(number)  # jsonb has no minus zero


_decode_numbers = msgspec.json.Decoder(float_hook=_stored_number).decode


def _is_taken(event: Event, queue: Queue) -> bool:
    """Whether a queue takes an event."""
    by_tag = all if queue.all_tags else any
    return (
        queue.takes
        and (queue.types is None or any(matches(one, event.type) for one in queue.types))
        and (queue.tags is None or by_tag(tag in event.tags for tag in queue.tags))
    )


def _new_event(call: Call) -> NewEvent:
    key = _idempotency_key(call)
    if isinstance(call.body, bytes):
        return cloudevents.read_one(call.body, key)
    event: NewEvent = call.body.event(key)
    return event


def _idempotency_key(call: Call) -> str | None:
    key: str | None = call.request.headers.get("idempotency-key")
    if key == "":
        raise InvalidInput("the Idempotency-Key is empty: leave it out, or give a key")
    return key


def _trace(call: Call) -> str | None:
    """The traceparent of the request, if it is valid."""
    parent = call.request.headers.get("traceparent")
    return parent if tracing.is_traceparent(parent) else None


class Batch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Events to publish in one transaction."""

    events: list[NewEventBody]


class RawBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A batch whose events are not decoded yet."""

    events: list[msgspec.Raw]


class Published(msgspec.Struct, frozen=True):
    """The ids of the events, in the order of the request."""

    ids: list[int]
    pressure: bool | Absent = UNSET


async def publish_batch(call: Call) -> Response:
    """Publish all events or, if one is refused, none. With an `Idempotency-Key`, repeating the
    request gives the same events."""
    key = _idempotency_key(call)
    if isinstance(call.body, bytes):
        events = cloudevents.read_batch(call.body)
    else:
        events = await _new_events(call.body, key)
    with tracing.publishing_many(events, _trace(call)) as traced:
        ids = await call.client.publish_many(traced)
    return answer(Published(ids, ids.pressure or UNSET), 201)


async def _new_events(batch: RawBatch, key: str | None) -> list[NewEvent]:
    """Decodes a slice at a time: other requests are answered in between."""
    events: list[NewEvent] = []
    for place, raw in enumerate(batch.events):
        if place % SLICE == SLICE - 1:
            await asyncio.sleep(0)
        try:
            new = _read(raw, place)
            events.append(new.event(None if key is None else f"{key}/{place}"))
        except Refusal as refusal:
            refusal.fields["position"] = place
            raise
    return events


def _read(raw: msgspec.Raw, place: int) -> NewEventBody:
    try:
        return _decode(raw)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        said = f"The body is not valid: {what} - at `$.events[{place}]{where or '`'}."
        raise Refusal(400, "invalid_body", said) from None
    except msgspec.DecodeError as error:
        raise Refusal(400, "invalid_json", f"The body is not valid JSON: {error}.") from None
    except UnicodeDecodeError:
        raise Refusal(400, "invalid_json", "The body is not UTF-8: encode it.") from None
    except RecursionError:
        raise Refusal(
            400, "invalid_json", "The body is nested too deeply: send a flatter one."
        ) from None


_decode = msgspec.json.Decoder(NewEventBody).decode


OPERATIONS = (
    Operation(
        *("POST", "/events", publish_event, "publish"),
        body=NewEventBody,
        body_limit=BESIDES,
        carries_payload=True,
        media_types=("application/json", cloudevents.ONE),
        headers=HEADERS,
        answers={201: EventBody},
    ),
    Operation(
        *("POST", "/events/batch", publish_batch, "publish"),
        body=Batch,
        reads=RawBatch,
        is_batch=True,
        body_limit=BATCH_BODY,
        media_types=("application/json", cloudevents.BATCH),
        headers=HEADERS,
        answers={201: Published},
    ),
)
