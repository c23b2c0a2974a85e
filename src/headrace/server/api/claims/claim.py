"""Workers claim events, with or without a long poll."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta
from starlette.responses import Response

from headrace.model import Claimed, Released
from headrace.server.api.shapes import ClaimedBody, Subscribed, claimed_body, subscribed
from headrace.server.api.values import Lease, WorkerId, tag_list
from headrace.server.clients import Look
from headrace.server.http.delivery import DELIVERY, ReplyDelivery
from headrace.server.http.operation import NO_STORE, Call, InQueue, Limit, Operation, answer
from headrace.server.http.refusal import Refusal
from headrace.server.long_poll import LONGEST, is_gone

Wait: TypeAlias = Annotated[float, Meta(ge=0, le=LONGEST)]
Word: TypeAlias = Annotated[str, Meta(min_length=1)]
Words: TypeAlias = Annotated[list[Word], Meta(min_length=1, max_length=100)]


class Subscription(InQueue, frozen=True, kw_only=True):
    worker_id: WorkerId
    tags: Annotated[tuple[Word, ...], Meta(max_length=100)] | None = None
    """Events with any of these tags, or with all of them if `all_tags`; `*` matches every event."""
    types: Annotated[tuple[Word, ...], Meta(max_length=100)] | None = None
    """Event types; asterisks are wildcards."""
    all_tags: bool = False
    lease: Lease | None = None
    """Seconds until another worker may claim the event, unless a heartbeat extends the lease.
    Default: the lease of the queue, else of the server, else 60."""
    wait: Wait = 0
    """Seconds to wait for an event if none is ready."""


async def subscribe(call: Call) -> Response:
    """Claim one event for a worker; 204 if none is ready. The worker holds the event until its
    lease ends."""
    query: Subscription = call.query
    if query.tags is None and query.types is None:
        raise Refusal(
            400,
            "invalid_query",
            "The query has neither tags nor types: add one, or tags=* for all.",
        )
    found = await _claim(call, query, query.tags, 1)
    return answer(subscribed(found[0])) if found else Response(status_code=204, headers=NO_STORE)


class NewClaim(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A claim: which events, how many, and for how long."""

    worker_id: WorkerId
    tags: Word | Words | None = None
    types: Words | None = None
    all_tags: bool = False
    limit: Limit = 1
    lease: Lease | None = None
    """Seconds. Default: the lease of the queue, else of the server, else 60."""
    wait: Wait = 0


class ClaimedList(msgspec.Struct, frozen=True):
    """The events that the worker now holds."""

    events: list[ClaimedBody]


async def claim_events(call: Call) -> Response:
    """Claim up to `limit` events for a worker, the most urgent first. One heartbeat extends the
    lease of all events that were claimed together."""
    body: NewClaim = call.body
    found = await _claim(call, body, tag_list(body.tags), body.limit)
    return answer(ClaimedList([claimed_body(one) for one in found]))


async def _claim(
    call: Call, asked: Subscription | NewClaim, tags: Any, limit: int
) -> list[Claimed]:
    client, waiting = call.client, call.services.waiting
    types = list(asked.types) if asked.types else None
    tags = None if not tags or "*" in tags else list(tags)
    lease = asked.lease or await _default_lease(call)

    one = Look(client.verbs, asked.worker_id, limit, types, tags, asked.all_tags, lease)
    directory = call.services.directory

    async def look() -> list[Claimed]:
        return await directory.claim(one)

    async with waiting.patience(call.request, asked.wait) as patience:
        found = await waiting.until_found(
            look,
            patience,
            look_in=lambda: directory.look_in(one),
            namespace=call.namespace,
            queue=call.queue,
            filter=msgspec.json.encode((types, tags, asked.all_tags)),
        )
        gone = patience.is_gone if asked.wait else found and await is_gone(call.request)
    if not found:
        return []

    async def hand_back() -> None:
        await client.finish([Released(one) for one in found])

    delivery: ReplyDelivery | None = call.request.scope.get(DELIVERY)
    if gone or (delivery is not None and delivery.is_hopeless):  # the worker has left
        await hand_back()
        return []
    # Else the lease would expire, and the event would be charged with a crash of its worker.
    if delivery is not None:
        delivery.on_failure(lambda: call.services.later(hand_back))
    return found


async def _default_lease(call: Call) -> float | None:
    """None: the engine decides, which knows the queue."""
    usual = call.services.limits.lease
    if usual is None:
        return None
    queue = await call.services.directory.settings(call.namespace, call.queue)
    return usual if queue.lease is None else None


OPERATIONS = (
    Operation(
        *("GET", "/events/subscribe", subscribe, "consume", Subscription),
        answers={200: Subscribed, 204: None},
    ),
    Operation(
        *("POST", "/events/claim", claim_events, "consume"),
        body=NewClaim,
        answers={200: ClaimedList},
    ),
)
