"""Administration of deliveries and events, and its log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from msgspec.structs import replace

from headrace.engine.arguments import array, is_id, strings
from headrace.engine.look import LookVerbs
from headrace.engine.statement import Row, Statement, Steps, ask, done
from headrace.model import AdminAction, Event, instant, told

STEP = 1000  # ids that are named in one statement


class Step(NamedTuple):
    """The answer to a step of redrive or purge: the next step goes on from there."""

    started_at: datetime
    done: int
    more: bool


def cancel(namespace: str, queue: str, event_id: int, reason: str, actor: str) -> Statement[bool]:
    return Statement(
        "select headrace.cancel(%s, %s::bigint, %s, %s, %s)",
        (namespace, event_id, queue, reason, actor),
        lambda rows: rows[0][0],
    )


def reset(namespace: str, queue: str, event_id: int, reason: str, actor: str) -> Statement[bool]:
    return Statement(
        "select headrace.reset(%s, %s::bigint, %s, %s, %s)",
        (namespace, event_id, queue, reason, actor),
        lambda rows: rows[0][0],
    )


def rerun(namespace: str, queue: str, event_id: int, reason: str, actor: str) -> Statement[None]:
    return done(
        "headrace.rerun(%s, %s::bigint, %s, %s, %s)", namespace, event_id, queue, reason, actor
    )


def purge(
    namespace: str,
    queue: str,
    what: str,
    ids: Sequence[int] | None,
    types: list[str] | None,
    fingerprint: str | None,
    reason: str,
    actor: str,
    last: Step | None = None,
) -> Statement[Step]:
    return Statement(
        "select pg_catalog.timestamptz_send(started_at), done, more "
        "from headrace.purge(%s, %s, %s, %s::bigint[], %s::pg_catalog.text[], %s, %s, %s, "
        "started_at => %s::pg_catalog.timestamptz, done => %s::bigint)",
        (
            *(namespace, queue, what, None if ids is None else array(ids), types, fingerprint),
            *(reason, actor),
            *((last.started_at, last.done) if last else (None, 0)),
        ),
        read_step,
    )


def erase(namespace: str, event_id: int, reason: str, actor: str) -> Statement[bool]:
    return Statement(
        "select headrace.erase(%s, %s::bigint, %s, %s)",
        (namespace, event_id, reason, actor),
        lambda rows: rows[0][0],
    )


def admin_log(
    namespace: str | None, limit: int, before: int | None
) -> Statement[list[AdminAction]]:
    return Statement(
        "select id, pg_catalog.timestamptz_send(at), namespace_name, actor, action, target, details::pg_catalog.text "
        "from headrace.admin_log(%s, %s::int, %s::bigint)",
        (namespace, limit, before),
        lambda rows: [
            AdminAction(
                id, instant(at), where, actor, action, target, told(details) if details else {}
            )
            for id, at, where, actor, action, target, details in rows
        ],
    )


def read_step(rows: list[Row]) -> Step:
    started_at, done, more = rows[0]
    return Step(instant(started_at), done, more)


def _chunks(ids: list[int]) -> list[list[int]]:
    return [ids[start : start + STEP] for start in range(0, len(ids), STEP)]


class AdministerVerbs(LookVerbs):
    """Verbs of an administrator."""

    def cancel(self, id: int, *, reason: str = "", actor: str | None = None) -> Steps[Event]:
        """End an event's delivery in this queue for good, whether it waits or is in progress: its
        worker loses the lease. `reason` and `actor` (this client's worker) are kept in the log.
        AlreadyEnded: the delivery has ended otherwise; Busy: a worker is finishing it right now."""
        self._must_be_id(id)
        yield cancel(*self.names, id, reason, actor or self.worker)
        return (yield from self.event(id))

    def reset(self, id: int, *, reason: str = "", actor: str | None = None) -> Steps[Event]:
        """Make an event's delivery ready now: its worker loses the lease, a delay is cut short, a
        dead letter is redriven. AlreadyEnded: the delivery is completed or cancelled; Busy: a
        worker is finishing it right now."""
        self._must_be_id(id)
        yield reset(*self.names, id, reason, actor or self.worker)
        return (yield from self.event(id))

    def rerun(self, id: int, *, reason: str = "", actor: str | None = None) -> Steps[Event]:
        """Deliver an event to this queue again that is completed or cancelled: ready now, from the
        beginning, with its log kept. NotEnded: it is unfinished. AlreadyEnded: it is a dead letter,
        which is redriven, or was erased. EventNotFound: its retention has ended."""
        self._must_be_id(id)
        yield rerun(*self.names, id, reason, actor or self.worker)
        return (yield from self.event(id))

    def purge(
        self,
        what: Literal["ready", "delayed", "dead_letters"],
        ids: Iterable[int] | None = None,
        *,
        types: Sequence[str] | None = None,
        fingerprint: str | None = None,
        reason: str = "",
        actor: str | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> Steps[int]:
        """Remove what waits in this queue, or its dead letters, and return how many: all that are
        there now, or those of some types, or dead letters by ids or `fingerprint`. Waiting
        deliveries are cancelled; deliveries in progress stay. In steps, as `redrive`."""
        asked = (strings(types, "types"), fingerprint, reason, actor or self.worker)
        return self._in_steps(
            ids,
            lambda chunk, last: purge(self.namespace, self.queue_name, what, chunk, *asked, last),
            progress,
        )

    def erase(self, id: int, *, reason: str = "", actor: str | None = None) -> Steps[None]:
        """Erase the contents of an event for good: its payload, its description, the texts of its
        errors, its dead letters; the log of what happened stays. Unfinished deliveries are
        cancelled first, in all queues. Busy: a worker is finishing one right now, and nothing was
        erased."""
        self._must_be_id(id)
        yield erase(self.namespace, id, reason, actor or self.worker)

    def admin_log(
        self, *, everywhere: bool = False, limit: int = 100, before: int | None = None
    ) -> Steps[list[AdminAction]]:
        """What administrators did in this namespace, or `everywhere`: the newest first. Page on
        with `before`, an id."""
        return ask(admin_log(None if everywhere else self.namespace, limit, before))

    def _in_steps(
        self,
        ids: Iterable[int] | None,
        step: Callable[[Sequence[int] | None, Step | None], Statement[Step]],
        progress: Callable[[int], object] | None,
    ) -> Steps[int]:
        """Take steps until there is no more, and return how many deliveries there were."""
        last = None
        for chunk in [None] if ids is None else _chunks([id for id in ids if is_id(id)]):
            more = True
            while more:
                last = yield from ask(replace(step(chunk, last), has_its_own_time=True))
                more = last.more
                if progress:
                    progress(last.done)
        return last.done if last else 0
