"""The state of a queue, how far it has come; and reading its events again."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from functools import partial

from headrace.engine.arguments import MAX_ID, moment, strings
from headrace.engine.caller import Caller
from headrace.engine.look import described_event
from headrace.engine.statement import Row, Statement, Steps, ask, done, timed
from headrace.errors import InvalidInput
from headrace.model import Checkpoint, Event, LowWater, QueueState, ReplayPage, instant, told
from headrace.model.pauses import NO_JITTER, Pauses

REPLAYED = 500  # events that are read again by one statement


FIRST_PAUSE, LONGEST_PAUSE = 0.01, 1.0  # seconds


PATIENCE = 5.0  # seconds of waiting for other transactions before a warning is logged


logger = logging.getLogger("headrace")


def state(namespace: str, queue: str, limit: int, after: int) -> Statement[QueueState]:
    return Statement(
        "select document::pg_catalog.text, total, is_exact from headrace.state(%s, %s, %s::int, %s::bigint)",
        (namespace, queue, limit, after),
        lambda rows: QueueState(told(rows[0][0]), rows[0][1], rows[0][2]),
    )


def save_state(namespace: str, queue: str) -> Statement[None]:
    return done("headrace.save_state(%s, %s)", namespace, queue)


def low_water(namespace: str, queue: str) -> Statement[LowWater]:
    return Statement(
        "select checkpoint_id, event_count, lag, lag_is_exact, "
        "pg_catalog.timestamptz_send(oldest_at), reason from headrace.low_water(%s, %s)",
        (namespace, queue),
        lambda rows: LowWater(*timed(rows[0], 4)),
    )


def checkpoint(namespace: str, queue: str) -> Statement[Checkpoint]:
    return Statement(
        "select id::pg_catalog.text, queue_id, checkpoint_id, event_count, "
        "pg_catalog.timestamptz_send(created_at), lag, lag_is_exact, "
        "pg_catalog.timestamptz_send(oldest_at), reason from headrace.checkpoint(%s, %s)",
        (namespace, queue),
        lambda rows: Checkpoint(*timed(rows[0], 4, 7)),
    )


def checkpoints(
    namespace: str, queue: str, limit: int, before: str | None
) -> Statement[list[Checkpoint]]:
    return Statement(
        "select id::pg_catalog.text, queue_id, checkpoint_id, event_count, "
        "pg_catalog.timestamptz_send(created_at) "
        "from headrace.checkpoints(%s, %s, %s::int, %s::pg_catalog.timestamptz)",
        (namespace, queue, limit, before),
        lambda rows: [Checkpoint(*timed(row, 4)) for row in rows],
    )


def replay(
    namespace: str,
    queue: str,
    after: int,
    since: str | None,
    types: list[str] | None,
    limit: int,
    mark: str | None,
) -> Statement[ReplayPage]:
    return Statement(
        "select id, type, tags, payload::pg_catalog.text, details::pg_catalog.text, priority, max_retries, key, "
        "pg_catalog.timestamptz_send(created_at), next_mark, done, held_by, rewound_to "
        "from headrace.replay(%s, %s, %s::bigint, %s::pg_catalog.timestamptz, %s::pg_catalog.text[], %s::int, %s)",
        (namespace, queue, after, since, types, limit, mark),
        partial(_read_page, namespace),
    )


def _read_page(namespace: str, rows: list[Row]) -> ReplayPage:
    *events, (after, *_, mark, is_done, held_by, rewound_to) = rows
    return ReplayPage(
        [_read_event(namespace, row) for row in events], after, mark, is_done, held_by, rewound_to
    )


def _read_event(namespace: str, row: Row) -> Event:
    id, type, tags, payload, details, priority, max_retries, key, created, *_ = row
    created_at = instant(created)
    values = {
        "id": id,
        "namespace": namespace,
        "type": type,
        "title": type,
        "tags": tuple(tags or ()),
        "payload": told(payload),
        "status": None,
        "priority": priority,
        "max_retries": max_retries,
        "key": key,
        "created_at": created_at,
        "updated_at": created_at,
    }
    return Event(**(values | described_event(details)))


class Replay:
    """A replay: its filter, its position, and how long to wait now: `pause`, 0 when there may be
    more."""

    def __init__(
        self,
        from_checkpoint: Checkpoint | int | str | None,
        since: datetime | None,
        types: Sequence[str] | None,
    ) -> None:
        if from_checkpoint is not None and since is not None:
            raise InvalidInput("events are read again from a checkpoint or since a time, not both")
        self.after = _place(from_checkpoint)
        self.since = None if since is None else moment(since, "since")
        self.types = strings(types, "types")
        self.mark: str | None = None
        self.is_over = False
        self.pause = 0.0
        self._pauses = Pauses(FIRST_PAUSE, LONGEST_PAUSE, jitter=NO_JITTER)
        self._waited = 0.0

    def read(self, page: ReplayPage) -> None:
        is_stuck = page.held_by is not None and not page.events
        self._waited = self._waited + self.pause if is_stuck else 0.0
        if self._waited - self.pause < PATIENCE <= self._waited:
            logger.warning("a replay waits: %s", page.held_by)
        if page.rewound_to is not None:
            logger.warning(
                "the database was promoted or restored: events after %s may be told again",
                page.rewound_to,
            )
        if not is_stuck:
            self._pauses.reset()
        self.pause = self._pauses.next() if is_stuck else 0.0
        self.after, self.mark, self.is_over = page.after, page.mark, page.done


def _place(checkpoint: Checkpoint | int | str | None) -> int:
    id = checkpoint.checkpoint_id if isinstance(checkpoint, Checkpoint) else checkpoint
    if id is None:
        return 0  # nothing was finished then
    try:
        place = int(id)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"a checkpoint is the id of an event, not {id!r}") from error
    if not 0 <= place <= MAX_ID:
        raise InvalidInput(f"a checkpoint is the id of an event, not {id!r}")
    return place


class StateVerbs(Caller):
    """Verbs about the state of a queue."""

    def state(self, *, limit: int = 100, after: int = 0) -> Steps[QueueState]:
        """The state of this queue, as a document: its unfinished events with their payloads, the
        oldest first and at most `limit` of those after an id; its checkpoint, metrics, settings and
        status. `total` says how many there are."""
        return ask(state(*self.names, limit, after))

    def save_state(self) -> Steps[None]:
        """Save the state of this queue now. It is saved from time to time anyway, and when a node
        stops."""
        return ask(save_state(*self.names))

    def low_water(self) -> Steps[LowWater]:
        """How far this queue has come, and what keeps it from going further."""
        return ask(low_water(*self.names))

    def checkpoint(self) -> Steps[Checkpoint]:
        """Save the state of this queue and how far it has come: every event at or below the
        checkpoint is finished, and none can be committed below it any more."""
        return ask(checkpoint(*self.names))

    def checkpoints(
        self, *, limit: int = 100, before: datetime | None = None
    ) -> Steps[list[Checkpoint]]:
        """How far this queue had come at which time, the newest first: the checkpoints that were
        asked for, and those that are taken from time to time."""
        until = None if before is None else moment(before, "before")
        return (yield from ask(checkpoints(*self.names, limit, until)))

    def replay(
        self,
        *,
        from_checkpoint: Checkpoint | int | str | None = None,
        since: datetime | None = None,
        types: Sequence[str] | None = None,
    ) -> Replay:
        """Read the events that this queue takes again, in the order of their ids, in any status:
        those after a checkpoint, or published since a time; else all that are kept.
        The replay ends with the last event that was there when it began, and skips none: while a
        transaction is open that may still commit an event before that one, the replay waits."""
        return Replay(from_checkpoint, since, types)

    def replay_on(self, so_far: Replay) -> Steps[list[Event]]:
        """The next events of a replay."""
        page = yield from ask(
            replay(
                *self.names,
                so_far.after,
                so_far.since,
                so_far.types,
                REPLAYED,
                so_far.mark,
            )
        )
        so_far.read(page)
        return page.events
