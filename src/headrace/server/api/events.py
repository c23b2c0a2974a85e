"""Events: published, shown, listed, reset, cancelled, erased."""

from __future__ import annotations

import asyncio
import re
from decimal import Decimal
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta
from msgspec.structs import replace
from starlette.responses import Response

from headrace.engine.arguments import MAX_ID, MAX_INT
from headrace.errors import InvalidInput
from headrace.model import Event, EventPage, NewEvent, Queue, Status
from headrace.model.patterns import matches
from headrace.server.api import cloudevents
from headrace.server.api.shapes import (
    EventBody,
    EventList,
    NewEventBody,
    ReasonBody,
    Why,
    event_body,
    listed_event,
    log_body,
    story_body,
)
from headrace.server.api.values import Absent, Moment, told
from headrace.server.http.operation import (
    NO_STORE,
    Call,
    InNamespace,
    InQueue,
    Operation,
    Patterns,
    answer,
    location,
)
from headrace.server.http.refusal import Refusal
from headrace.telemetry import tracing

BESIDES = 64 * 1024  # bytes of a body besides its payload
LONGEST_NUMBER = 1000  # digits
BATCH_BODY = 16 * 1024 * 1024
SLICE = 100  # events of a batch that are decoded before other requests have a turn
ENDED = {"COMPLETED", "CANCELLED"}
LOOK_AT, MOST_LOOKED_AT = 200_000, 1_000_000  # ids that a request searches
HEADERS = {
    "Idempotency-Key": "Repeating the request with this key gives the same events; the "
    "idempotency_key of an event has precedence.",
    "traceparent": "The trace of the request (W3C Trace Context); the handler of the event "
    "continues it.",
}


async def publish_event(call: Call) -> Response:
    """Publish an event. It is stored durably when the answer is 201. With an `Idempotency-Key`,
    repeating the request gives the same event."""
    queue = await call.services.directory.settings(call.namespace, call.queue)
    with tracing.publishing(_new_event(call), _trace(call)) as new:
        published = await call.services.batches.publish(call.namespace, new, len(new.payload))
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


class Shown(InQueue, frozen=True, kw_only=True):
    include_logs: bool = False
    details: bool = False
    """Include its type, attempts, worker and origin."""
    deliveries: bool = False
    """Include its state in every queue."""
    include: Literal["story"] | None = None
    """Include each attempt, its state in every queue, its cause and the events it caused."""


async def show_event(call: Call) -> Response:
    """One event and its state in the queue; with its log, or its whole history, on request."""
    query: Shown = call.query
    if query.include == "story":
        return await _tell(call, query)
    event = await call.client.event(call.event_id, deliveries=query.deliveries)
    body = event_body(event, details=query.details)
    if query.include_logs:
        log = await call.client.log(event.id)
        body = replace(body, logs=[log_body(entry) for entry in log if entry.action != "EMITTED"])
    return answer(body)


async def _tell(call: Call, query: Shown) -> Response:
    story = await call.client.story(call.event_id)
    body = event_body(story.event, details=query.details)
    if not query.deliveries:
        body = replace(body, deliveries=UNSET)
    if query.include_logs:
        log = await call.client.log(story.event.id)
        body = replace(body, logs=[log_body(entry) for entry in log if entry.action != "EMITTED"])
    return answer(replace(body, story=story_body(story)))


class Asked(InNamespace, frozen=True, kw_only=True):
    queue: str | None = None
    """Only the delivery in this queue. Default: the deliveries in all queues."""


async def explain_event(call: Call) -> Response:
    """Why an event is not being handled: of each delivery the reasons that hold at this moment,
    with what it waits for; or which worker has it, or how it ended."""
    found = await call.client.why(call.event_id, queue=call.query.queue)
    reasons = [told(ReasonBody, one, about=dict(one.about)) for one in found]
    return answer(Why(call.event_id, reasons))


class Listed(InQueue, frozen=True, kw_only=True):
    q: Annotated[str, Meta(min_length=1, max_length=1000)] | None = None
    """The id, idempotency key or correlation id of an event, else the beginning of a type."""
    status: tuple[Status, ...] | None = None
    types: Patterns | None = None
    """Event types; asterisks are wildcards."""
    tags: Patterns | None = None
    """Events with any of these tags, or with all of them if `all_tags`."""
    all_tags: bool = False
    since: Moment | None = None
    until: Moment | None = None
    key: str | None = None
    orphaned: bool = False
    """Only events in progress whose worker has not been seen for `orphan_after` seconds."""
    orphan_after: Annotated[float, Meta(ge=0, le=31 * 86400)] = 30
    limit: Annotated[int, Meta(ge=1, le=1000)] = 20
    offset: Annotated[int, Meta(ge=0, le=MAX_INT)] = 0
    after: Annotated[int, Meta(ge=0, le=MAX_ID)] | None = None
    """Only events with higher ids. Paging with `after` or `before` is faster than an offset."""
    before: Annotated[int, Meta(ge=0, le=MAX_ID)] | None = None
    oldest_first: bool = False
    payload: bool = False
    details: bool = False
    look_at: Annotated[int, Meta(ge=1, le=MOST_LOOKED_AT)] | None = None
    """Search so many ids only. Default: 200,000 where finished events are filtered by type, tag,
    key or time, because they are searched one by one. `searched_to` says where to continue."""

    @property
    def is_one_by_one(self) -> bool:
        """Whether the database searches finished events one by one, however many there are."""
        given = self.types or self.tags or self.since or self.until or self.key or self.q
        ended = ENDED if self.status is None else ENDED & set(self.status)
        return bool(ended) and bool(given or "COMPLETED" not in ended) and not self.orphaned


async def list_events(call: Call) -> Response:
    """The events of a queue that match a filter, the newest first. With `q`, the events that it
    names, whatever the filter."""
    query: Listed = call.query
    if query.q is not None:
        if query.types is not None:
            raise Refusal(
                400, "invalid_query", "The query has both q and types: remove one of them."
            )
        found = await call.client.find_events(query.q, limit=query.limit, payload=query.payload)
        if found:
            return _list(query, EventPage(found, len(found)))
    page = await call.client.events(
        status=query.status,
        types=query.types if query.q is None else [f"{query.q}*"],
        tags=None if query.tags and "*" in query.tags else query.tags,
        all_tags=query.all_tags,
        since=query.since,
        until=query.until,
        key=query.key,
        orphaned=query.orphaned,
        orphan_after=query.orphan_after,
        limit=query.limit,
        offset=query.offset,
        after=query.after,
        before=query.before,
        oldest_first=query.oldest_first,
        payload=query.payload,
        look_at=query.look_at or (LOOK_AT if query.is_one_by_one else None),
    )
    return _list(query, page)


def _list(query: Listed, page: EventPage) -> Response:
    return answer(
        EventList(
            [
                listed_event(event, details=query.details, payload=query.payload)
                for event in page.events
            ],
            page.total,
            query.limit,
            query.offset,
            UNSET if page.total_is_exact else False,
            page.searched_to or UNSET,
        )
    )


class Reasoned(InQueue, frozen=True, kw_only=True):
    reason: str = ""
    """Why; it is written to the log."""


async def reset_event(call: Call) -> Response:
    """Make an event ready now. A worker that holds it loses its claim, a delay ends, and a dead
    letter is retried."""
    reason, id = call.query.reason, call.event_id
    return answer(event_body(await call.client.reset(id, reason=reason, actor=call.actor)))


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
    Operation(
        *("POST", "/events/{id}/reset", reset_event, "admin", Reasoned),
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
    Operation("GET", "/events", list_events, "read", Listed, answers={200: EventList}),
    Operation("GET", "/events/{id}/why", explain_event, "read", Asked, answers={200: Why}),
    Operation("GET", "/events/{id}", show_event, "read", Shown, answers={200: EventBody}),
)
