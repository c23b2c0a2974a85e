"""Look at events: one, a list, its story."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from msgspec.structs import replace

from headrace.engine.arguments import interval, is_id, moment, strings
from headrace.engine.log import LogVerbs, number_line
from headrace.engine.statement import Row, Statement, Steps, ask, instant_or_none, timed
from headrace.errors import EventNotFound, InvalidInput
from headrace.model import (
    Delivery,
    Duration,
    Event,
    EventPage,
    NewEvent,
    Status,
    instant,
    said_time,
    scheduled_for,
    told,
    told_details,
)
from headrace.model.story import RELATIVES, Relative, Story, attempts

OVERLAP = timedelta(hours=1)  # for which a call that publishes may last, at most


_EVENT_TIMES = (
    "next_retry_at",
    "processing_started_at",
    "lease_expires_at",
    "created_at",
    "updated_at",
)


_EVENT_COLUMNS = (
    *("id", "type", "status", "attempts", "retry_count", "crashes", "max_retries", "priority"),
    *("worker_id", "tags", "payload", "details", "key", "reason"),
    *_EVENT_TIMES,
)


SELECT_EVENTS = f"""\
select id, type, status, attempts, retry_count, crashes, max_retries, priority,
       worker_id, tags, payload::pg_catalog.text, details::pg_catalog.text, key, reason,
       {", ".join(f"pg_catalog.timestamptz_send({name})" for name in _EVENT_TIMES)}
from headrace."""


# What describes an event beside its columns: as it was published, and by a schedule.
_DETAILS = {
    *(set(NewEvent.__struct_fields__) & set(Event.__struct_fields__) - set(_EVENT_COLUMNS)),
    *("scheduled_task_id", "scheduled_for"),
}


def event(namespace: str, queue: str, event_id: int) -> Statement[Event]:
    return Statement(
        SELECT_EVENTS + "event(%s, %s::bigint, %s)",
        (namespace, event_id, queue),
        lambda rows: read_event(namespace, rows[0]),
    )


def read_event(namespace: str, row: Row) -> Event:
    values = dict(zip(_EVENT_COLUMNS, row, strict=True)) | {"namespace": namespace}
    details, payload = values.pop("details"), values["payload"]
    values |= {"tags": tuple(values["tags"] or ())}
    values |= {"payload": None if payload is None else told(payload)}
    values |= {name: instant_or_none(values[name]) for name in _EVENT_TIMES}
    return Event(**{"title": values["type"], **values, **described_event(details)})


def described_event(details: str | None) -> dict[str, Any]:
    said = told_details(details)
    return _described(said) | {"emitted_at": said_time(said, "emitted_at")}


def described(details: str | None) -> dict[str, Any]:
    return _described(told_details(details))


def _described(said: dict[str, Any]) -> dict[str, Any]:
    # What else was written into them past the functions is no field of an event.
    known = {name: value for name, value in said.items() if name in _DETAILS}
    return {**known, "scheduled_for": scheduled_for(known)} if "scheduled_for" in known else known


class Filter(NamedTuple):
    """Which events are looked for, in the engine's order."""

    statuses: list[str] | None
    types: list[str] | None
    tags: list[str] | None
    all_tags: bool
    since: str | None
    until: str | None
    key: str | None
    orphaned: bool
    orphan_after: timedelta


_FILTER = (
    "%s, %s, %s::pg_catalog.text[], %s::pg_catalog.text[], %s::pg_catalog.text[], %s::boolean, %s::pg_catalog.timestamptz, %s::pg_catalog.timestamptz, "
    "%s, %s::boolean, %s::interval"
)


class Page(NamedTuple):
    """Which of them, in the engine's order."""

    limit: int
    offset: int
    after: int | None
    before: int | None
    oldest_first: bool
    payload: bool


def events(namespace: str, queue: str, filter: Filter, page: Page) -> Statement[list[Event]]:
    return Statement(
        f"{SELECT_EVENTS}events({_FILTER}, %s::int, %s::int, %s::bigint, %s::bigint, "
        "%s::boolean, %s::boolean)",
        (namespace, queue, *filter, *page),
        lambda rows: [read_event(namespace, row) for row in rows],
    )


class Count(NamedTuple):
    total: int
    is_exact: bool


def count_events(namespace: str, queue: str, filter: Filter) -> Statement[Count]:
    return Statement(
        f"select total, is_exact from headrace.count_events({_FILTER})",
        (namespace, queue, *filter),
        lambda rows: Count(*rows[0]),
    )


def deliveries_of(namespace: str, event_id: int) -> Statement[tuple[Delivery, ...]]:
    return Statement(
        "select queue, status, attempts, retry_count, crashes, max_retries, "
        "pg_catalog.timestamptz_send(next_retry_at), worker_id, "
        "pg_catalog.timestamptz_send(processing_started_at), "
        "pg_catalog.timestamptz_send(lease_expires_at), "
        "pg_catalog.timestamptz_send(updated_at) from headrace.deliveries(%s, %s::bigint)",
        (namespace, event_id),
        lambda rows: tuple(Delivery(*timed(row, 6, 8, 9, 10)) for row in rows),
    )


def lineage(namespace: str, queue: str, event_id: int) -> Statement[dict[str, list[Relative]]]:
    """The events that are related to one, by relation."""

    def read(rows: list[Row]) -> dict[str, list[Relative]]:
        found: dict[str, list[Relative]] = {}
        for relation, id, type, status, created_at in rows:
            one = Relative(id, type, status, instant(created_at))
            found.setdefault(relation, []).append(one)
        return found

    return Statement(
        "select relation, id, type, status, pg_catalog.timestamptz_send(created_at) "
        "from headrace.lineage(%s, %s::bigint, %s, %s::int)",
        (namespace, event_id, queue, RELATIVES),
        read,
    )


def find_events(
    namespace: str, queue: str, word: str, limit: int, payload: bool
) -> Statement[list[Event]]:
    return Statement(
        f"{SELECT_EVENTS}find_events(%s, %s, %s, %s::int, %s::boolean)",
        (namespace, word, queue, limit, payload),
        lambda rows: [read_event(namespace, row) for row in rows],
    )


class LookVerbs(LogVerbs):
    """Verbs that look at events."""

    def _must_be_id(self, id: int) -> None:
        if not is_id(id):
            raise EventNotFound(f"there is no event {id} in the namespace {self.namespace!r}")

    def event(self, id: int, *, deliveries: bool = False) -> Steps[Event]:
        """One event, and the state of its delivery in this queue; with `deliveries`, in every queue
        that got it."""
        self._must_be_id(id)
        found = yield from ask(event(*self.names, id))
        if not deliveries:
            return found
        return replace(found, deliveries=(yield from ask(deliveries_of(self.namespace, id))))

    def events(
        self,
        *,
        status: Status | Sequence[Status] | None = None,
        types: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
        all_tags: bool = False,
        since: datetime | None = None,
        until: datetime | None = None,
        key: str | None = None,
        orphaned: bool = False,
        orphan_after: Duration = 30,
        limit: int = 20,
        offset: int = 0,
        after: int | None = None,
        before: int | None = None,
        oldest_first: bool = False,
        payload: bool = False,
        look_at: int | None = None,
    ) -> Steps[EventPage]:
        """The events of this queue that a filter selects, the newest first. A type may hold
        asterisks; any of the tags is enough unless `all_tags`; created from `since` to before
        `until`; `key` is the ordering key. `orphaned` events have been in progress for
        `orphan_after` without another entry in the log. `before` and `after` take an id to page on
        from, which costs less than an offset. Payloads come on request. Events that ended long ago
        are searched one by one: `look_at` searches a stretch of so many ids only, and the page says
        in `searched_to` where to go on."""
        filter = Filter(
            [status] if isinstance(status, str) else strings(status, "status"),
            strings(types, "types"),
            strings(tags, "tags"),
            all_tags,
            None if since is None else moment(since, "since"),
            None if until is None else moment(until, "until"),
            key,
            orphaned,
            interval(orphan_after, "orphan_after"),
        )
        page = Page(limit, offset, after, before, oldest_first, payload)
        if look_at is not None:
            return (yield from self._look(filter, page, look_at))
        return (yield from self._page(filter, page))

    def _page(self, filter: Filter, page: Page) -> Steps[EventPage]:
        found = yield from ask(events(*self.names, filter, page))
        paging_on = page.after is not None or page.before is not None
        if len(found) < page.limit and (found or not page.offset) and not paging_on:
            return EventPage(found, page.offset + len(found))
        count = yield from ask(count_events(*self.names, filter))
        return EventPage(found, count.total, count.is_exact)

    def _look(self, filter: Filter, page: Page, look_at: int) -> Steps[EventPage]:
        """Search a stretch of ids only, whatever is beyond it."""
        if look_at < 1:
            raise InvalidInput("look_at is a number from 1 on")
        line = yield from ask(number_line())
        if line.places <= look_at:  # which is all there is
            return (yield from self._page(filter, page))
        low, high = page.after or 0, page.before if page.before is not None else line.end + 1
        if page.oldest_first:
            stretch = (low, min(high, line.after(low, look_at)))
        else:
            stretch = (max(low, line.before(high, look_at)), high)
        some = page._replace(after=stretch[0], before=stretch[1])
        found = yield from ask(events(*self.names, filter, some))
        is_all = len(found) < page.limit and (
            stretch == (low, high) or (yield from self._is_older(filter, page, stretch[0]))
        )
        total = page.offset + len(found)
        if is_all or len(found) == page.limit:
            return EventPage(found, total, is_all)
        reached = stretch[1] - 1 if page.oldest_first else stretch[0] + 1
        return EventPage(found, total, False, reached)

    def _is_older(self, filter: Filter, page: Page, low: int) -> Steps[bool]:
        """Whether all events up to an id are older than the filter asks for: ids are drawn in the
        order of time, but for those of calls that overlap."""
        if filter.since is None or page.oldest_first:
            return False
        every = filter._replace(
            statuses=None, types=None, tags=None, since=None, until=None, key=None
        )
        first = page._replace(limit=1, offset=0, after=low, before=None, oldest_first=True)
        found = yield from ask(events(*self.names, every, first))
        return bool(found) and found[0].created_at + OVERLAP < datetime.fromisoformat(filter.since)

    def story(self, id: int) -> Steps[Story]:
        """All there is to know about an event: its attempts with their errors, its state in every
        queue, its cause and its effects. Raises EventNotFound."""
        event = yield from self.event(id, deliveries=True)
        log = yield from self.log(id)
        found = yield from ask(lineage(*self.names, id))
        return Story(
            event=event,
            attempts=attempts(log),
            deliveries=event.deliveries or (),
            caused_by=next(iter(found.get("caused_by", ())), None),
            causes=tuple(found.get("causes", ())),
            same_correlation=tuple(found.get("correlated", ())),
        )

    def find_events(
        self, word: str, *, limit: int = 20, payload: bool = False
    ) -> Steps[list[Event]]:
        """The events that a word may mean, the newest first: the event with this id or idempotency
        key, and those with this correlation id."""
        return ask(find_events(*self.names, word, limit, payload))
