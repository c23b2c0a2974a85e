"""Events: published, looked at, listed."""

from __future__ import annotations

import asyncio
import re
from decimal import Decimal
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta
from msgspec.structs import replace
from starlette.responses import Response

from headrace import tracing
from headrace.arguments import MAX_ID, MAX_INT
from headrace.errors import InvalidInput
from headrace.model import Event, EventPage, NewEvent, Queue, Status
from headrace.patterns import matches
from headrace.server import cloudevents
from headrace.server.failures import Refusal
from headrace.server.operations import (
    NO_STORE,
    Call,
    InQueue,
    Operation,
    Patterns,
    answer,
    location,
)
from headrace.server.wire import (
    Absent,
    EventBody,
    EventList,
    Moment,
    NewEventBody,
    event_body,
    listed_event,
    log_body,
    story_body,
)

BESIDES = 64 * 1024  # bytes of a body that are not its payload
LONGEST_NUMBER = 1000  # digits
BATCH_BODY = 16 * 1024 * 1024
SLICE = 100  # events of a batch that are read in one go
ENDED = {"COMPLETED", "CANCELLED"}
LOOK_AT, MOST_LOOKED_AT = 200_000, 1_000_000  # ids that a request looks at
HEADERS = {
    "Idempotency-Key": "The same request again under this key gives what it gave; an event's own key comes first.",
    "traceparent": "The trace that this is a part of (W3C Trace Context); whoever handles the event goes on with it.",
}


async def publish_event(call: Call) -> Response:
    """Publish an event. It is stored for good when this answers 201. With an `Idempotency-Key`, the same request
    again gives the same event."""
    queue = await call.services.directory.settings(call.namespace, call.queue)
    with tracing.publishing(_new_event(call), _trace(call)) as new:
        published = await call.services.gathering.publish(call.namespace, new, len(new.payload))
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
    """With the payload as a look at the event tells it, but for the order of keys: of a key that was sent twice, PostgreSQL keeps
    the last value, and it writes numbers without exponents."""
    decode = _decode_numbers if _REWRITTEN.search(event.payload) else msgspec.json.decode
    try:
        return replace(event, payload=decode(event.payload))
    except (ValueError, RecursionError):
        return replace(event, payload=(await call.client.event(event.id)).payload)


_REWRITTEN = re.compile(
    rb"\d[eE][+-]?\d|-0"
)  # what may be a number that PostgreSQL writes otherwise


def _stored_number(text: str) -> int | float:
    """A number with a point or an exponent, as PostgreSQL writes it."""
    exact = Decimal(text)
    if abs(exact.adjusted()) > LONGEST_NUMBER:
        raise ValueError("too long to be written out here")
    number: int | float = msgspec.json.decode(format(exact, "f"))
    return number or abs(number)  # there is no minus zero


_decode_numbers = msgspec.json.Decoder(float_hook=_stored_number).decode


def _is_taken(event: Event, queue: Queue) -> bool:
    """Whether a queue gets an event."""
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
        raise InvalidInput("the Idempotency-Key is empty")
    return key


def _trace(call: Call) -> str | None:
    """The trace that the request is a part of."""
    parent = call.request.headers.get("traceparent")
    return parent if tracing.is_traceparent(parent) else None


class Batch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Events to publish together."""

    events: list[NewEventBody]


class RawBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The same, as it is read at first."""

    events: list[msgspec.Raw]


class Published(msgspec.Struct, frozen=True):
    """The ids of the events, in the order given."""

    ids: list[int]
    pressure: bool | Absent = UNSET


async def publish_batch(call: Call) -> Response:
    """Publish all of these events, or, if one cannot be accepted, none of them. With an `Idempotency-Key`, the same
    request again gives the same events."""
    key = _idempotency_key(call)
    if isinstance(call.body, bytes):
        events = cloudevents.read_batch(call.body)
    else:
        events = await _new_events(call.body, key)
    with tracing.publishing_many(events, _trace(call)) as traced:
        ids = await call.client.publish_many(traced)
    return answer(Published(ids, ids.pressure or UNSET), 201)


async def _new_events(batch: RawBatch, key: str | None) -> list[NewEvent]:
    """Some at a time: others are answered in between."""
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
        said = f"The body is wrong: {what} - at `$.events[{place}]{where or '`'}."
        raise Refusal(400, "invalid_body", said) from None
    except msgspec.DecodeError as error:
        raise Refusal(400, "invalid_json", f"The body is not JSON: {error}.") from None
    except UnicodeDecodeError:
        raise Refusal(400, "invalid_json", "The body is not UTF-8.") from None
    except RecursionError:
        raise Refusal(400, "invalid_json", "The body is nested too deep.") from None


_decode = msgspec.json.Decoder(NewEventBody).decode


class Shown(InQueue, frozen=True, kw_only=True):
    include_logs: bool = False
    details: bool = False
    """Also its type, its attempts, who works on it, what it came from."""
    deliveries: bool = False
    """Also where it stands in every queue."""
    include: Literal["story"] | None = None
    """Also its attempts one by one, where it stands in every queue, what caused it and what it caused."""


async def show_event(call: Call) -> Response:
    """One event, and where its delivery in the queue stands; with its log, or its whole story, on request."""
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


class Listed(InQueue, frozen=True, kw_only=True):
    q: Annotated[str, Meta(min_length=1, max_length=1000)] | None = None
    """An event's id, idempotency key or correlation id; what is none of them is the beginning of a type."""
    status: tuple[Status, ...] | None = None
    types: Patterns | None = None
    """A type may hold asterisks."""
    tags: Patterns | None = None
    """Any of them will do, unless `all_tags`."""
    all_tags: bool = False
    since: Moment | None = None
    until: Moment | None = None
    key: str | None = None
    orphaned: bool = False
    """Only those that have been in work for `orphan_after` seconds without a sign of life."""
    orphan_after: Annotated[float, Meta(ge=0, le=31 * 86400)] = 30
    limit: Annotated[int, Meta(ge=1, le=1000)] = 20
    offset: Annotated[int, Meta(ge=0, le=MAX_INT)] = 0
    after: Annotated[int, Meta(ge=0, le=MAX_ID)] | None = None
    """Only events with higher ids: to page on with this, or `before`, costs less than an offset."""
    before: Annotated[int, Meta(ge=0, le=MAX_ID)] | None = None
    oldest_first: bool = False
    payload: bool = False
    details: bool = False
    look_at: Annotated[int, Meta(ge=1, le=MOST_LOOKED_AT)] | None = None
    """Look at a stretch of so many ids only, 200,000 if it is not said: what has ended is looked for event by event where a
    type, a tag, a key or a time is wanted. `searched_to` says where to go on."""

    @property
    def is_one_by_one(self) -> bool:
        """Whether it is looked for event by event, however many have ended."""
        given = self.types or self.tags or self.since or self.until or self.key or self.q
        ended = ENDED if self.status is None else ENDED & set(self.status)
        return bool(ended) and bool(given or "COMPLETED" not in ended) and not self.orphaned


async def list_events(call: Call) -> Response:
    """The events of the queue that a filter selects, the newest first. With `q`, those that it names, whatever the filter."""
    query: Listed = call.query
    if query.q is not None:
        if query.types is not None:
            raise Refusal(400, "invalid_query", "Either q or types, not both.")
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
    """Why; it is kept in the log."""


async def reset_event(call: Call) -> Response:
    """Make an event ready now, whoever works on it: that worker's claim is lost. A delay is cut short, a dead letter
    is delivered again."""
    reason, id = call.query.reason, call.event_id
    return answer(event_body(await call.client.reset(id, reason=reason, actor=call.actor)))


async def cancel_event(call: Call) -> Response:
    """End an event for good, whether it waits or somebody works on it."""
    reason, id = call.query.reason, call.event_id
    return answer(event_body(await call.client.cancel(id, reason=reason, actor=call.actor)))


async def erase_event(call: Call) -> Response:
    """Erase what an event says, for good: its payload, what describes it, the texts of its errors, its dead letters. What
    is not finished is cancelled first, in all queues; the trail stays."""
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
    Operation("GET", "/events/{id}", show_event, "read", Shown, answers={200: EventBody}),
)
