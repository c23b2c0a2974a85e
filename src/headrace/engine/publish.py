"""Publish: events go in."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from headrace.engine.arguments import interval
from headrace.engine.backoff import policy
from headrace.engine.caller import Caller, Connection
from headrace.engine.encoding import (
    Batch,
    Encoded,
    beginning,
    details,
    encoded,
    new_event,
    single,
    together,
)
from headrace.engine.statement import (
    TIMES,
    UNREADABLE,
    Around,
    Batchable,
    Row,
    Statement,
    Steps,
    Together,
    ask,
    explain,
)
from headrace.errors import HeadraceError, IdempotencyConflict, InvalidInput, InvalidPayload
from headrace.model import Backoff, Duration, Event, Ids, NewEvent, Publishables, instant
from headrace.telemetry import tracing

_NONE, _ITSELF = frozenset[int](), frozenset({0})  # places of repeated events, of one event

_PLACE = re.compile(r"event (\d+) of the batch")


_OWNER = re.compile(r"the key is that of event (\d+)")


class Published(NamedTuple):
    ids: list[int]
    created_at: datetime
    """Of the first of them."""
    repeated: frozenset[int]
    """The places, from 0, of those whose idempotency key was used before."""
    pressure: bool
    is_dated: bool = True
    """False: `created_at` is the time of another event of the batch, which is older."""


_PUBLISH = """\
select ids, pg_catalog.timestamptz_send(created_at), repeated, pressure
from headrace.publish(%s, %s::pg_catalog.jsonb)"""


_PUBLISH_ANYWAY = _PUBLISH[:-1] + ", enforce => false)"


def max_payload() -> Statement[int]:
    """How many bytes a payload may have in this database."""
    return Statement("select headrace.max_payload()", (), lambda rows: rows[0][0])


_PUBLISH_ASKED = _PUBLISH[:-1] + ", enforce => %s::boolean, asked => true)"


_PUBLISH_MANY = """\
select ids, pg_catalog.timestamptz_send(created_at), null::int[], pressure
from headrace.publish_many(%s, %s, %s::pg_catalog.jsonb)"""


_PUBLISH_MANY_ANYWAY = _PUBLISH_MANY[:-1] + ", enforce => false)"


def publish(
    namespace: str,
    batch: Batch,
    enforce: bool = True,
    asked: bool = False,
    batchable: Batchable | None = None,
) -> Statement[Published]:
    """enforce: a full queue refuses the events; else it only reports pressure. asked: other shards
    do not know their idempotency keys."""
    if asked:
        sql = _PUBLISH_ASKED
        params: tuple[Any, ...] = (namespace, batch.document, enforce)
    elif batch.type is None:
        sql = _PUBLISH if enforce else _PUBLISH_ANYWAY
        params = (namespace, batch.document)
    else:
        sql = _PUBLISH_MANY if enforce else _PUBLISH_MANY_ANYWAY
        params = (namespace, batch.type, batch.document)
    return Statement(
        sql,
        params,
        partial(_read_published, batch.order),
        partial(_explain_publish, batch),
        batchable=batchable,
    )


# Past the fields' types and lengths: a record as PostgreSQL sends it.
_record = struct.Struct(">12xq8x8s8x?").unpack


_PUBLISH_ONE = "select pg_catalog.record_send(headrace.publish_one(%s, %s, %s::pg_catalog.jsonb))"


_PUBLISH_ONE_ANYWAY = _PUBLISH_ONE[:-2] + ", enforce => false))"


def publish_one(
    namespace: str,
    type: str,
    payload: str,
    enforce: bool = True,
    batchable: Batchable | None = None,
) -> Statement[Published]:
    """Publish an event that has nothing but a type and a payload."""
    return Statement(
        _PUBLISH_ONE if enforce else _PUBLISH_ONE_ANYWAY,
        (namespace, type, payload),
        _read_one,
        _explain_one,
        batchable=batchable,
    )


def _read_one(rows: list[Row]) -> Published:
    id, created_at, pressure = _record(rows[0][0])
    return Published([id], instant(created_at), frozenset(), pressure)


def _explain_one(sqlstate: str | None, message: str, detail: str | None) -> HeadraceError | None:
    if sqlstate in UNREADABLE - TIMES:
        return InvalidPayload(message)
    return explain(sqlstate, message, detail)


def _read_published(order: Sequence[int] | None, rows: list[Row]) -> Published:
    ((ids, created_at, repeated, pressure),) = rows
    if order is not None:
        ids = [id for _, id in sorted(zip(order, ids, strict=True))]
    # With idempotency keys, the places alone give the order.
    places = frozenset(place - 1 for place in repeated or ())
    return Published(ids, instant(created_at), places, pressure)


def _explain_publish(
    batch: Batch, sqlstate: str | None, message: str, detail: str | None
) -> HeadraceError | None:
    error = _explain_one(sqlstate, message, detail)
    place = _PLACE.search(detail or "")
    if isinstance(error, InvalidInput | IdempotencyConflict) and place:
        error.position = batch.position(int(place[1]) - 1)
    if isinstance(error, IdempotencyConflict) and (owner := _OWNER.search(detail or "")):
        error.event_id = int(owner[1])
    return error


def publishing(
    namespace: str, event: NewEvent, given: dict[str, Any], enforce: bool = True
) -> Statement[Published]:
    """The shortest way to publish one event. `given` are its details."""
    one = encoded(event, given)
    batchable = _batchable(namespace, one) if enforce else None
    if one.type is None:
        return publish(namespace, single(one), enforce, batchable=batchable)
    return publish_one(namespace, one.type, one.payload.decode(), enforce, batchable)


def _batchable(namespace: str, one: Encoded) -> Batchable:
    size = len(one.header) + len(one.payload)
    # Events with an idempotency, unique or debounce key may have to wait for a publisher of the
    # same key, and the others need not.
    kind, may_wait = ("publish", one.is_for_one), one.is_for_one
    return Batchable(namespace, kind, one, size, partial(_publish_together, namespace), may_wait)


def _publish_together(namespace: str, events: Sequence[Encoded]) -> Statement[list[Published]]:
    batch = publish(namespace, together(events))
    return Statement(batch.sql, batch.params, partial(_each, batch.read), batch.explain)


def _each(read: Callable[[list[Row]], Published], rows: list[Row]) -> list[Published]:
    """What each event's publisher would have been told."""
    done = read(rows)
    is_dated = 0 not in done.repeated
    return [
        Published(
            [id],
            done.created_at,
            _ITSELF if place in done.repeated else _NONE,
            done.pressure,
            is_dated,
        )
        for place, id in enumerate(done.ids)
    ]


def pending(namespace: str, event: NewEvent, given: dict[str, Any], published: Published) -> Event:
    """The event as it is now, so that its publisher need not ask for it. `given` are its
    details."""
    created_at = published.created_at
    return Event(
        id=published.ids[0],
        namespace=namespace,
        type=event.type,
        payload={} if event.payload is None else event.payload,
        status=None if published.repeated or not published.is_dated else "PENDING",
        repeated=bool(published.repeated),
        created_at=created_at,
        updated_at=created_at,
        title=event.title or event.type,
        pressure=published.pressure,
        **(_stored(given, created_at) if given else given),
    )


def _stored(given: dict[str, Any], created_at: datetime) -> dict[str, Any]:
    """The fields of an Event that repeat what a NewEvent was given, most of them under the same
    name."""
    given = given.copy()
    for name in ("title", "idempotency_key", "settle", "at_latest"):
        given.pop(name, None)
    due_at, delay = given.pop("at", None), given.pop("delay", None)
    if delay is not None:
        due_at = created_at + interval(delay, "delay")
    if due_at is not None and due_at > created_at:
        given["next_retry_at"] = due_at
    if "tags" in given:
        given["tags"] = tuple([tag.strip(" ") for tag in given["tags"]])
    if "backoff" in given:
        given["backoff"] = policy(given["backoff"])
    return given


class PublishVerbs(Caller):
    """Verbs that publish events."""

    def publish(
        self,
        type: str | NewEvent = "event",
        payload: Any = None,
        *,
        tags: Sequence[str] | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        key: str | None = None,
        idempotency_key: str | None = None,
        max_retries: int | None = None,
        backoff: Backoff | None = None,
        title: str | None = None,
        description: str | None = None,
        version: str | None = None,
        source: Mapping[str, str] | None = None,
        correlation_id: str | None = None,
        causation_id: str | None = None,
        trace_id: str | None = None,
        producer: str | None = None,
        headers: Mapping[str, Any] | None = None,
        unique: str | None = None,
        debounce: str | None = None,
        settle: Duration | None = None,
        at_latest: Duration | None = None,
        max_attempts: int | None = None,
        enforce: bool = False,
        connection: Connection | None = None,
    ) -> Steps[Event]:
        """Store an event and queue it. The event is committed when this returns. With `connection`
        it exists if and only if that connection's transaction commits. QueueFull, QueueDraining:
        nothing was published. In a transaction of yours a full queue refuses nothing and only sets
        `pressure`, unless you `enforce` its limit. While an event of the `unique` key is unfinished,
        nothing is stored and its id is returned, `repeated`. With `debounce` it supersedes the event
        of that key that waits, is due after `settle` without another one, and `at_latest` after the
        first of them. A NewEvent may take the place of the type; it
        has all the rest, so `enforce` and `connection` are the only arguments beside it."""
        event = new_event(
            NewEvent(
                type=type,  # type: ignore[arg-type]  # new_event takes out a NewEvent
                payload=payload,
                tags=tags,
                delay=delay,
                at=at,
                priority=priority,
                key=key,
                idempotency_key=idempotency_key,
                max_retries=max_retries,
                backoff=backoff,
                title=title,
                description=description,
                version=version,
                source=source,
                correlation_id=correlation_id,
                causation_id=causation_id,
                trace_id=trace_id,
                producer=producer,
                headers=headers,
                unique=unique,
                debounce=debounce,
                settle=settle,
                at_latest=at_latest,
                max_attempts=max_attempts,
            )
        )
        event = self.codecs.encoded(event)
        enforced = enforce or self.is_alone(connection)
        if tracing.is_on():
            traced = partial(self.publish_event, enforce=enforced)
            stored: Event = yield Around(tracing.publishing(event), traced)
            return stored
        given = details(event)
        published: Published = yield publishing(self.namespace, event, given, enforced)
        return pending(self.namespace, event, given, published)

    def publish_event(self, event: NewEvent, enforce: bool) -> Steps[Event]:
        """Publish a NewEvent that is traced already."""
        event = self.codecs.encoded(event)
        given = details(event)
        published: Published = yield publishing(self.namespace, event, given, enforce)
        return pending(self.namespace, event, given, published)

    def publish_asked(
        self, event: NewEvent, enforce: bool, connection: Connection | None
    ) -> Steps[Event]:
        """Publish a NewEvent whose idempotency key no other shard knows."""
        enforced = enforce or self.is_alone(connection)
        event = self.codecs.encoded(event)

        def traced(event: NewEvent) -> Steps[Event]:
            given = details(event)
            one = single(encoded(event, given))
            stored = publish(self.namespace, one, enforced, asked=True)
            return pending(self.namespace, event, given, (yield stored))

        if tracing.is_on():
            told: Event = yield Around(tracing.publishing(event), traced)
            return told
        return (yield from traced(event))

    def publish_many(
        self,
        events: Publishables,
        *,
        enforce: bool = False,
        connection: Connection | None = None,
    ) -> Steps[Ids]:
        """Publish all events or none, and return their ids in the same order, and the `pressure`.
        An event is a NewEvent, a mapping of the arguments of `publish`, or a tuple (type,
        payload)."""
        enforced = enforce or self.is_alone(connection)
        if tracing.is_on() and not tracing.is_publishing():
            traced = partial(self._publish_all, enforce=enforced)
            ids: Ids = yield Around(tracing.publishing_many(events), traced)
            return ids
        return (yield from self._publish_all(events, enforced))

    def publish_many_asked(
        self, events: Publishables, enforce: bool, connection: Connection | None
    ) -> Steps[Ids]:
        """Publish events whose idempotency keys no other shard knows."""
        enforced = enforce or self.is_alone(connection)
        return self._publish_all(events, enforced, asked=True)

    def _publish_all(self, events: Publishables, enforce: bool, asked: bool = False) -> Steps[Ids]:
        few, rest = beginning(self.codecs.encoded_all(events))
        if not few:  # nothing, into a namespace that must be there all the same
            yield publish(self.namespace, Batch("[]", None), enforce=enforce)
            return Ids()
        publishes = partial(publish, self.namespace, enforce=enforce, asked=asked)
        if rest is None and len(few) == 1:
            published = yield from ask(publishes(few[0]))
            return Ids(published.ids, published.pressure)
        replies: list[Published] = yield Together(map(publishes, chain(few, rest or ())))
        return Ids(
            (id for published in replies for id in published.ids),
            any(published.pressure for published in replies),
        )
