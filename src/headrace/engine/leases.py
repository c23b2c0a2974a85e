"""Leases: a claim lives, by heartbeats, and keeps its progress."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from headrace.engine.arguments import array, interval, is_id
from headrace.engine.caller import Caller, Connection
from headrace.engine.json_values import encode
from headrace.engine.results import is_token
from headrace.engine.statement import Batchable, Statement, Steps, ask, done, instant_or_none
from headrace.engine.verdicts import check_finished, several
from headrace.errors import InvalidPayload, LeaseLost
from headrace.model import AnyClaim, Claim, Duration, Extended, Verdict, instant, told

CAUSES = {"CANCELLED": "cancelled", "RESET": "reset", "ERASED": "erased"}
"""What was done to an event that was taken out of a claim, by the log's action."""


def extend(
    namespace: str, queue: str, tokens: Mapping[int, str | None], lease: Duration | None
) -> Statement[dict[int, Extended]]:
    """The state of each lease. `tokens`: by lease."""
    return Statement(
        "select lease, state, pg_catalog.timestamptz_send(lease_expires_at), taken::pg_catalog.text "
        "from headrace.extend(%s, %s, %s::bigint[], %s::interval, %s::pg_catalog.text[])",
        (namespace, queue, array(list(tokens)), _length(lease), list(tokens.values())),
        lambda rows: {row[0]: _extended(*row[1:]) for row in rows},
    )


def _extended(state: Any, lease_expires_at: bytes | None, taken: str | None) -> Extended:
    gone = {} if taken is None else {int(id): action for id, action in told(taken).items()}
    return Extended(state, instant_or_none(lease_expires_at), gone)


def heartbeat_one(
    namespace: str, queue: str, claim: Claim, worker: str | None, lease: Duration | None
) -> Statement[Extended]:
    """A heartbeat that goes together with others of its queue."""
    alone = heartbeat(namespace, queue, claim, worker, lease)
    asked = claim.id, claim.attempt or None, worker, _length(lease), claim.lease_token
    return Statement(
        alone.sql,
        alone.params,
        alone.read,
        batchable=Batchable(
            namespace, ("heartbeat", queue), asked, 0, partial(_heartbeats, namespace, queue), True
        ),
    )


def _heartbeats(
    namespace: str, queue: str, asked: Sequence[tuple[Any, ...]]
) -> Statement[list[Extended]]:
    """In the order of the events, so that two such statements do not wait for each other."""
    order = sorted(range(len(asked)), key=lambda place: asked[place][0])
    events, attempts, workers, lengths, tokens = map(
        list, zip(*(asked[place] for place in order), strict=True)
    )
    return Statement(
        "select h.state, pg_catalog.timestamptz_send(h.lease_expires_at), h.taken::pg_catalog.text "
        "from pg_catalog.generate_series(1, %s::int) n cross join lateral headrace.heartbeat("
        "%s, (%s::bigint[])[n], (%s::int[])[n], (%s::pg_catalog.text[])[n], %s, (%s::interval[])[n], "
        "(%s::pg_catalog.text[])[n]) h order by n",
        (
            *(len(order), namespace, array(events), array(attempts), workers, queue),
            *(lengths, tokens),
        ),
        partial(_read_heartbeats, order),
    )


def _read_heartbeats(order: Sequence[int], rows: list[Any]) -> list[Extended]:
    answers = {place: _extended(*row) for place, row in zip(order, rows, strict=True)}
    return [answers[place] for place in range(len(rows))]


def _length(lease: Duration | None) -> timedelta | None:
    """None: as long as it was claimed for."""
    return None if lease is None else interval(lease, "lease")


def start(namespace: str, queue: str, claim: Claim, worker: str | None) -> Statement[datetime]:
    return Statement(
        "select pg_catalog.timestamptz_send(headrace.start(%s, %s::bigint, %s::int, %s, %s, %s))",
        (namespace, claim.id, claim.attempt or None, worker, queue, claim.lease_token),
        lambda rows: instant(rows[0][0]),
    )


def heartbeat(
    namespace: str, queue: str, claim: Claim, worker: str | None, lease: Duration | None
) -> Statement[Extended]:
    return Statement(
        "select state, pg_catalog.timestamptz_send(lease_expires_at), taken::pg_catalog.text "
        "from headrace.heartbeat(%s, %s::bigint, %s::int, %s, %s, %s::interval, %s)",
        (
            *(namespace, claim.id, claim.attempt or None, worker, queue),
            *(_length(lease), claim.lease_token),
        ),
        lambda rows: _extended(*rows[0]),
    )


def hear_interruptions(instance: str) -> Statement[str]:
    """The channel on which this session hears from now on that deliveries were taken out of the
    claims of a start of a node."""
    return Statement(
        "select headrace.hear_interruptions(%s::pg_catalog.uuid)",
        (instance,),
        lambda rows: rows[0][0],
    )


def resolve(namespace: str, queue: str, event: int, attempt: int) -> Statement[str | None]:
    return Statement(
        "select headrace.resolve(%s, %s, %s::bigint, %s::int)",
        (namespace, queue, event, attempt),
        lambda rows: rows[0][0],
    )


def save_progress(namespace: str, queue: str, claim: AnyClaim, progress: Any) -> Statement[None]:
    return done(
        "headrace.save_progress(%s, %s::bigint, %s::int, %s::pg_catalog.jsonb, %s, %s::bigint, %s)",
        namespace,
        claim.id,
        claim.attempt,
        encode(progress, "the progress", InvalidPayload).decode(),
        queue,
        None if claim.held else claim.lease,
        claim.lease_token,
    )


def progress(namespace: str, queue: str, ids: Sequence[int]) -> Statement[dict[int, Any]]:
    """The saved progress, by event; an event without any is left out."""
    return Statement(
        "select event, progress::pg_catalog.text from headrace.progress(%s, %s::bigint[], %s)",
        (namespace, array(ids), queue),
        lambda rows: {id: told(text) for id, text in rows},
    )


def _of_claim(claim: AnyClaim, extended: Extended | None) -> Extended:
    """The state of one claim of a lease."""
    if extended is None or claim.id not in extended.taken:
        return extended or Extended("lost")
    return Extended("lost", None, extended.taken)


def _cause(claim: AnyClaim, lost: Extended) -> str:
    action = lost.taken.get(claim.id)
    if action is None:
        return "it ran out and was taken away"
    return f"the event was {CAUSES.get(action, 'taken away')}"


class LeaseVerbs(Caller):
    """Verbs about a claim that is not finished."""

    def extend(
        self, claimed: AnyClaim | Sequence[AnyClaim], lease: Duration | None = None
    ) -> Steps[Extended | list[Extended]]:
        """Heartbeat: make the leases last from now on, for `lease`, else for as long as they were
        claimed for. One claim that is lost raises LeaseLost; of many, each has its state. All
        deliveries that were claimed together under one lease are extended together. A claim is
        also lost when its event was cancelled, reset or erased: stop working on it."""
        claims = several(claimed)
        leases = {
            one.lease: one.lease_token
            for one in claims
            if one.lease is not None and is_id(one.lease) and is_token(one.lease_token)
        }
        states: dict[int, Extended] = {}
        if leases:
            states = yield from ask(extend(*self.names, leases, lease))
            held = [one for one, extended in states.items() if extended.state == "held"]
            by = None if lease is None else interval(lease, "lease").total_seconds()
            self.memory.claims.extended(held, by)
        extended = [_of_claim(one, states.get(one.lease or 0)) for one in claims]
        if isinstance(claimed, Sequence):
            return extended
        if extended[0].state == "lost":
            raise LeaseLost(
                f"the lease on event {claimed.id} is lost: {_cause(claimed, extended[0])}",
                (claimed.id,),
            )
        return extended[0]

    def resolve(self, claimed: AnyClaim) -> Steps[str | None]:
        """After a COMMIT whose reply was lost: the action that ended this held attempt. None: the
        attempt has not ended. Waits for a commit that is in progress."""
        if not is_id(claimed.id):
            return None
        return (yield from ask(resolve(*self.names, claimed.id, claimed.attempt)))

    def save_progress(
        self, claimed: AnyClaim, progress: Any, *, connection: Connection | None = None
    ) -> Steps[None]:
        """Keep a JSON value of at most 64 KiB for the next attempt of a delivery; it replaces the
        value before it. LeaseLost: the claim is no longer the current one, and nothing was kept."""
        try:
            if is_id(claimed.id) and is_token(claimed.lease_token):
                yield save_progress(*self.names, claimed, progress)
                return
        except LeaseLost:
            pass  # which does not know whose
        check_finished([claimed], [Verdict("lost")])

    def progress(self, ids: Iterable[int]) -> Steps[dict[int, Any]]:
        """The progress that attempts of these events saved for the next attempt, by id; an event without
        saved progress is left out. Progress is kept until the delivery has ended, and with its dead
        letter."""
        possible = [id for id in ids if is_id(id)]
        if not possible:
            return {}
        return (yield from ask(progress(*self.names, possible)))
