"""Events are shown, listed and explained."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta
from msgspec.structs import replace
from starlette.responses import Response

from headrace.engine.arguments import MAX_ID, MAX_INT
from headrace.model import EventPage, Status
from headrace.server.api.shapes import (
    EventBody,
    EventList,
    ReasonBody,
    Why,
    event_body,
    listed_event,
    log_body,
    story_body,
)
from headrace.server.api.values import Moment, told
from headrace.server.http.operation import (
    Call,
    InNamespace,
    InQueue,
    Operation,
    Patterns,
    answer,
)
from headrace.server.http.refusal import Refusal

ENDED = {"COMPLETED", "CANCELLED"}
LOOK_AT, MOST_LOOKED_AT = 200_000, 1_000_000  # ids that a request searches


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


class WhyQuery(InNamespace, frozen=True, kw_only=True):
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


OPERATIONS = (
    Operation("GET", "/events", list_events, "read", Listed, answers={200: EventList}),
    Operation("GET", "/events/{id}/why", explain_event, "read", WhyQuery, answers={200: Why}),
    Operation("GET", "/events/{id}", show_event, "read", Shown, answers={200: EventBody}),
)
