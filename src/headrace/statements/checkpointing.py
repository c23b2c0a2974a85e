"""The state of a queue, how far it has come, what was taken over from the dead; and reading it all again."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from headrace.model import (
    Checkpoint,
    Event,
    Imported,
    LowWater,
    QueueState,
    Recovered,
    Recovery,
    ReplayPage,
    instant,
    told,
)
from headrace.statements.base import (
    Row,
    Statement,
    done,
    timed,
)
from headrace.statements.looking import described_event


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


def recoveries(namespace: str, queue: str, limit: int) -> Statement[list[Recovery]]:
    return Statement(
        "select node_id, checkpoint_id, events_recovered, "
        "pg_catalog.timestamptz_send(recovery_start_time), "
        "pg_catalog.timestamptz_send(recovery_complete_time), status "
        "from headrace.recoveries(%s, %s, %s::int)",
        (namespace, queue, limit),
        lambda rows: [Recovery(*timed(row, 3, 4)) for row in rows],
    )


class ExportedPart(NamedTuple):
    """Some events of a queue's file, as JSON."""

    events: str
    size: int
    last: int | None
    """The id of the last of them; None: there are none."""
    places: dict[str, int]


class Fenced(NamedTuple):
    """What a step of `fence` did, and what keeps it from being the last."""

    fenced: int
    is_busy: bool
    waits_for: list[str]
    held_by: str | None


def fence(namespace: str, queue: str, known: list[str] | None, actor: str) -> Statement[Fenced]:
    return Statement(
        "select fenced, is_busy, waits_for, held_by "
        "from headrace.fence(%s, %s, %s::pg_catalog.text[], %s)",
        (namespace, queue, known, actor),
        lambda rows: Fenced(*rows[0]),
        has_its_own_time=True,
    )


def export_queue(namespace: str, queue: str, move: bool) -> Statement[str]:
    return Statement(
        "select headrace.export_queue(%s, %s, %s::boolean)::pg_catalog.text",
        (namespace, queue, move),
        lambda rows: rows[0][0],
        has_its_own_time=True,
    )


def export_events(namespace: str, queue: str, after: int) -> Statement[ExportedPart]:
    return Statement(
        "select events::pg_catalog.text, size, last, places::pg_catalog.text "
        "from headrace.export_events(%s, %s, %s::bigint)",
        (namespace, queue, after),
        lambda rows: _read_part(*rows[0]),
        has_its_own_time=True,
    )


def _read_part(events: str, size: int, last: int | None, places: str) -> ExportedPart:
    return ExportedPart(events, size, last, told(places))


def begin_import(id: str, namespace: str, queue: str, header: str, actor: str) -> Statement[None]:
    return done(
        "headrace.import_state(%s, %s, %s::pg_catalog.uuid, header => %s::pg_catalog.json, actor => %s)",
        *(namespace, queue, id, header, actor),
    )


def import_events(id: str, namespace: str, queue: str, events: str) -> Statement[None]:
    return done(
        "headrace.import_state(%s, %s, %s::pg_catalog.uuid, events => %s::pg_catalog.json)",
        *(namespace, queue, id, events),
    )


def end_import(id: str, namespace: str, queue: str, total: int) -> Statement[Imported]:
    return Statement(
        "select is_new, kept_ids, stored, ready, delayed, dead, already "
        "from headrace.import_state(%s, %s, %s::pg_catalog.uuid, total => %s::bigint)",
        (namespace, queue, id, total),
        lambda rows: Imported(*rows[0]),
    )


def stay(instance: str) -> Statement[bool]:
    return Statement(
        "select headrace.stay(%s::pg_catalog.uuid)", (instance,), lambda rows: rows[0][0]
    )


def recover(namespace: str, node_id: str, instance: str) -> Statement[Recovered]:
    return Statement(
        "select recovered, state from headrace.recover(%s, %s, %s::pg_catalog.uuid)",
        (namespace, node_id, instance),
        lambda rows: Recovered(*rows[0]),
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
