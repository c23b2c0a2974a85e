"""Claim: deliveries go out to workers."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import repeat
from operator import attrgetter
from typing import NamedTuple

import msgspec

from headrace.engine.arguments import interval, strings
from headrace.engine.finish import finish
from headrace.engine.memory import Hints
from headrace.engine.statement import Row, Statement, Steps, ask, decode
from headrace.engine.time import TimeVerbs
from headrace.model import Claimed, Dispatch, Duration, Failed, instant

logger = logging.getLogger("headrace")


_decode_parts = msgspec.json.Decoder(list[msgspec.Raw]).decode


_SIGNS = re.compile(
    rb'"(?:[^"\\]|\\.)*"|[\[\]{},]'
)  # strings as a whole: a bracket inside one is no sign


# Times are fetched as the 8 bytes they are: Python makes a datetime only of those that are looked
# at.
_POLL = """\
select ids, payloads, details, type, tags, attempt, priority, retry_count, crashes, max_retries, created,
       lease, held, pg_catalog.timestamptz_send(lease_expires_at), lease_token::pg_catalog.text,
       pg_catalog.timestamptz_send(processing_started_at), look_in, hints
from headrace.poll_batch(%s, %s, %s::pg_catalog.text[], %s::pg_catalog.text[], %s::boolean, %s, %s::int, %s::interval,
                         %s::boolean, %s::boolean, %s, %s::boolean, %s::pg_catalog.uuid, %s, %s::int)"""


_POLL_FOR = """\
select place, ids, payloads, details, type, tags, attempt, priority, retry_count, crashes, max_retries, created,
       lease, held, pg_catalog.timestamptz_send(lease_expires_at), lease_token::pg_catalog.text,
       pg_catalog.timestamptz_send(processing_started_at), hints, look_in
from headrace.poll_for(%s, %s, %s::pg_catalog.text[], %s::pg_catalog.text[], %s::pg_catalog.text[], %s::boolean,
                       %s::interval, %s, %s::boolean)"""


class Poll(NamedTuple):
    """The arguments of poll that its caller gives, in the engine's order."""

    types: list[str] | None
    tags: list[str] | None
    all_tags: bool
    worker: str
    max_events: int
    lease: timedelta | None
    """None: as long as the queue says."""
    each: bool
    suspects: bool
    instance: str | None = None
    """The start of the node that claims. The engine has this and what follows after hints and
    sweep."""
    dispatch: Dispatch = "atomic"
    limited: int | None = None
    """The most events of groups with limits; None: as many as are asked for."""


class Read(NamedTuple):
    claimed: list[Claimed]
    unreadable: list[Failed]


class Polled(NamedTuple):
    """What a poll has claimed, undecoded: a node asks for more before it decodes this."""

    namespace: str
    rows: list[Row]
    size: int
    hints: str | None
    look_in: float | None
    """Seconds after which a rate lets the next event start. 0: one may start now, but not one more
    than the claim's `limited`. None: neither is known."""
    places: Sequence[int] = ()
    """Of a claim for several workers, the worker of each row, from 0."""

    def read(self) -> Read:
        found = Read([], [])
        rows = self.rows if self.size else []
        for row in rows:
            try:
                found.claimed.extend(_claimed(self.namespace, row))
            except Exception:
                _read_one_by_one(self.namespace, row, found)
        if 1 < len(rows) < len(found.claimed) + len(found.unreadable):
            found.claimed.sort(key=_ORDER)
        return found


def poll(
    namespace: str, queue: str, poll: Poll, hints: str | None = None, sweep: bool = False
) -> Statement[Polled]:
    return Statement(
        _POLL,
        (namespace, queue, *poll[:-3], hints, sweep, poll.instance, poll.dispatch, poll.limited),
        partial(_read_polled, namespace),
    )


def poll_for(
    namespace: str,
    queue: str,
    asked: Poll,
    workers: Sequence[str],
    hints: str | None = None,
    sweep: bool = False,
) -> Statement[Polled]:
    """One event for each worker."""
    filter = (asked.types, asked.tags, asked.all_tags)
    return Statement(
        _POLL_FOR,
        (namespace, queue, list(workers), *filter, asked.lease, hints, sweep),
        partial(_read_polled_for, namespace),
    )


def _read_polled_for(namespace: str, rows: list[Row]) -> Polled:
    look_in = rows.pop()[-1] if rows and rows[-1][0] is None else None
    places = [place - 1 for place, *_ in rows]
    alike = [tuple(row) for _, *row in rows]
    return Polled(namespace, alike, len(rows), rows[0][-2] if rows else None, look_in, places)


_ORDER = attrgetter("priority", "id")  # in which rows that name several have to be read


def _read_polled(namespace: str, rows: list[Row]) -> Polled:
    if len(rows) == 1 and not rows[0][0]:
        return Polled(namespace, rows, 0, None, rows[0][-2])
    hints = next((hints for *_, hints in rows if hints), None)
    return Polled(namespace, rows, sum(len(ids) for ids, *_ in rows), hints, None)


# fmt: off
def _claimed(namespace: str, row: Row) -> list[Claimed]:
    (ids, payloads, details, type, tags, attempt, priority, retry_count, crashes, max_retries, created,
     lease, held, expires, token, started, *_) = row
    tags = tuple(tags) if tags else ()
    expires_at = instant(expires)
    moments = repeat(created) if len(created) == 8 else _in_eights(created)
    return [
        Claimed(id, attempt, lease, held, type, tags, payload, priority, retry_count, crashes,
                max_retries, expires_at, created_at, detail, token, namespace, started)
        for id, payload, created_at, detail in zip(
            ids, decode(payloads), moments, _parts(details) if details else repeat(None), strict=False
        )
    ]


# fmt: on
def _read_one_by_one(namespace: str, row: Row, found: Read) -> None:
    ids, payloads, details, *alike, created, lease, held, expires, token, started, look, hints = row
    for place, (id, payload) in enumerate(zip(ids, _parts(payloads), strict=True)):
        moment = created if len(created) == 8 else _in_eights(created)[place]
        rest = (*alike, moment, lease, held, expires, token, started, look, hints)
        try:
            detail = b"[%s]" % _parts(details)[place] if details else None
            found.claimed.extend(_claimed(namespace, ([id], b"[%s]" % payload, detail, *rest)))
        except Exception as error:
            (blank,) = _claimed(namespace, ([id], b"[null]", None, *rest))
            reason = "Its payload cannot be read"
            found.unreadable.append(Failed(blank, f"{reason}: {error}", reason=reason))


def _parts(array: str | bytes) -> list[bytes]:
    """The elements of a JSON array, undecoded."""
    try:
        return [bytes(part) for part in _decode_parts(array)]
    except RecursionError:
        return _split(array.encode() if isinstance(array, str) else array)


def _split(array: bytes) -> list[bytes]:
    """The same, however deep they are."""
    parts, depth, start = [], 0, 1
    for sign in _SIGNS.finditer(array):
        match sign[0]:
            case b"[" | b"{":
                depth += 1
            case b"]" | b"}":
                depth -= 1
        if depth == 0 or (depth == 1 and sign[0] == b","):
            parts.append(array[start : sign.start()].strip())
            start = sign.end()
    return parts


def _in_eights(times: bytes) -> list[bytes]:
    return [times[at : at + 8] for at in range(0, len(times), 8)]


def fall_asleep(namespace: str, queue: str) -> Statement[str | None]:
    """Returns the channel on which this session is notified of work."""
    return Statement(
        "select headrace.fall_asleep(%s, %s)", (namespace, queue), lambda rows: rows[0][0]
    )


def wake_up(channel: str) -> Statement[bool]:
    return Statement("select headrace.wake_up(%s)", (channel,), lambda rows: rows[0][0])


def _lasts(poll: Poll, claimed: Sequence[Claimed]) -> float:
    """For how many seconds a claim lasts. Where the queue decides it, this is a rough number: the
    clock of this machine may be wrong."""
    if poll.lease is not None:
        return poll.lease.total_seconds()
    left = [(one.lease_expires_at - datetime.now(UTC)).total_seconds() for one in claimed[:1]]
    return max([60.0, *left])


class ClaimVerbs(TimeVerbs):
    """Verbs that claim deliveries."""

    def poll(
        self,
        *,
        types: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
        all_tags: bool = False,
        max_events: int = 1,
        lease: Duration | None = None,
        each: bool = False,
        suspects: bool = True,
        worker: str | None = None,
        dispatch: Dispatch = "atomic",
    ) -> Steps[list[Claimed]]:
        """Claim up to `max_events` deliveries for the length of a lease (else the queue's, else 60
        seconds), the most urgent first, of each type the oldest. An event that is more urgent than
        all that were seen lately may wait for a second. A type may hold asterisks; any of the tags
        is enough unless `all_tags`. With `each` every delivery has a lease of its own, to be
        finished inside a transaction. `dispatch`: as a node's; under "collect" an event that uses
        up its attempts, or kills its workers, ends as COMPLETED_WITH_ERRORS. Never waits: an empty
        queue returns an empty list."""
        asked = Poll(
            strings(types, "types"),
            strings(tags, "tags"),
            all_tags,
            worker or self.worker,
            max_events,
            None if lease is None else interval(lease, "lease"),
            each,
            suspects,
            dispatch=dispatch,
        )
        if self.is_alone(None):
            yield from self.catch_up()
        claimed = yield from self.claim(asked)
        self.memory.claims.opened(claimed, _lasts(asked, claimed))
        return claimed

    def poll_one(
        self,
        *,
        types: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
        all_tags: bool = False,
        lease: Duration | None = None,
        each: bool = False,
        suspects: bool = True,
        worker: str | None = None,
        dispatch: Dispatch = "atomic",
    ) -> Steps[Claimed | None]:
        """Claim the next delivery, as `poll` does. None: there is none."""
        claimed = yield from self.poll(
            types=types,
            tags=tags,
            all_tags=all_tags,
            lease=lease,
            each=each,
            suspects=suspects,
            worker=worker,
            dispatch=dispatch,
        )
        return claimed[0] if claimed else None

    def poll_for(
        self,
        workers: Sequence[str],
        *,
        types: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
        all_tags: bool = False,
        lease: Duration | None = None,
    ) -> Steps[list[Claimed | None]]:
        """Claim one event for each worker, as `poll` with `each` does. None: it gets none."""
        length = None if lease is None else interval(lease, "lease")
        names = strings(types, "types"), strings(tags, "tags")
        asked = Poll(*names, all_tags, self.worker, 1, length, True, True)
        if self.is_alone(None):
            yield from self.catch_up()
        claimed: list[Claimed | None] = [None] * len(workers)
        left = list(range(len(workers)))
        while left:
            make = partial(poll_for, *self.names, asked, [workers[place] for place in left])
            try:
                polled = yield from self._poll(asked, make)
            except Exception:
                if any(claimed):  # they are committed
                    break
                raise
            found = polled.read()
            place_of = {row[0][0]: at for row, at in zip(polled.rows, polled.places, strict=True)}
            for one in found.claimed:
                claimed[left[place_of[one.id]]] = one
                self.memory.claims.opened([one], _lasts(asked, [one]))
            if not found.unreadable:
                break
            yield from self.bury(found.unreadable)
            left = [place for place in left if claimed[place] is None]
        return claimed

    def claim(self, asked: Poll) -> Steps[list[Claimed]]:
        """Poll, for a caller that keeps track of its claims itself, and ticks itself."""
        found = (yield from self.claim_unread(asked)).read()
        while found.unreadable:
            yield from self.bury(found.unreadable)
            if found.claimed:
                break
            found = (yield from self.claim_unread(asked)).read()
        return found.claimed

    def claim_unread(self, asked: Poll) -> Steps[Polled]:
        """The same, for a caller that decodes it itself, and buries what it cannot read."""
        return self._poll(asked, partial(poll, *self.names, asked))

    def _poll(self, asked: Poll, make: Callable[..., Statement[Polled]]) -> Steps[Polled]:
        hints = self.memory.hints(asked.types, asked.tags, asked.all_tags)
        try:
            return (yield from self._poll_with(hints, make))
        except Exception:
            hints.text = None  # after any error the next poll begins anew
            raise

    def _poll_with(self, hints: Hints, make: Callable[..., Statement[Polled]]) -> Steps[Polled]:
        now = self.memory.clock
        started = now()
        if not hints.is_sweep_due(started):
            polled = yield from ask(make(hints=hints.text, sweep=False))
            hints.polled(now() - started)
            hints.look_in = polled.look_in
            if polled.size or not hints.is_sweep_worthwhile(now()):
                hints.text = polled.hints or hints.text
                return polled
        started = now()
        polled = yield from ask(make(hints=hints.text, sweep=True))
        hints.swept(now(), now() - started, found=polled.size > 0)
        hints.look_in = polled.look_in
        hints.text = polled.hints or hints.text
        return polled

    def bury(self, unreadable: list[Failed]) -> Steps[None]:
        """Dead-letter the events that cannot be read. If that fails, their leases run out and they
        come again."""
        ids = [one.claimed.id for one in unreadable]
        try:
            yield finish(*self.names, unreadable)
            logger.error("dead-lettered events with unreadable payloads: %s", ids)
        except Exception as error:
            logger.warning(
                "could not dead-letter events with unreadable payloads %s: %s", ids, error
            )
