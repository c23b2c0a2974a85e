"""Queues: made, changed, looked at, paused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

from headrace.arguments import seconds
from headrace.backoff import policy
from headrace.encoding import encode
from headrace.model import (
    Queue,
    instant,
    told,
)
from headrace.statements.base import (
    Row,
    Statement,
    done,
)

_QUEUE = """\
select name, state, takes, types, tags, all_tags, depth, filling, max_retries, backoff::pg_catalog.text, max_queue_depth,
       high_watermark, batch_size, processing_interval, persistence_threshold,
       require_lease_token, "order", lease, metadata::pg_catalog.text, pg_catalog.timestamptz_send(created_at)
from headrace."""


def queue(namespace: str, name: str) -> Statement[Queue]:
    return Statement(_QUEUE + "queue(%s, %s)", (namespace, name), lambda rows: _queue(rows[0]))


def queues(namespace: str) -> Statement[list[Queue]]:
    return Statement(_QUEUE + "queues(%s)", (namespace,), lambda rows: list(map(_queue, rows)))


def _queue(row: Row) -> Queue:
    values = dict(zip(Queue.__struct_fields__, row, strict=True))
    values |= {name: values[name] and tuple(values[name]) for name in ("types", "tags")}
    values |= {name: told(values[name]) for name in ("backoff", "metadata")}
    values["processing_interval"] = timedelta(milliseconds=values["processing_interval"])
    values["lease"] = None if values["lease"] is None else timedelta(seconds=values["lease"])
    values["created_at"] = instant(values["created_at"])
    return Queue(**values)


class NewQueue(NamedTuple):
    """The arguments of create_queue, in the engine's order."""

    name: str
    types: list[str] | None
    tags: list[str] | None
    all_tags: bool
    settings: dict[str, Any]
    since: str | None
    after: int | None
    actor: str


def create_queue(namespace: str, queue: NewQueue) -> Statement[bool]:
    name, types, tags, all_tags, settings, since, after, actor = queue
    return Statement(
        "select headrace.create_queue(%s, %s, %s::pg_catalog.text[], %s::pg_catalog.text[], %s::boolean, %s::pg_catalog.jsonb, "
        "%s::pg_catalog.timestamptz, %s::bigint, %s)",
        (namespace, name, types, tags, all_tags, _settings(settings), since, after, actor),
        lambda rows: rows[0][0],
    )


def change_queue(
    namespace: str, name: str, settings: dict[str, Any], actor: str
) -> Statement[None]:
    return done(
        "headrace.change_queue(%s, %s, %s::pg_catalog.jsonb, %s)",
        namespace,
        name,
        _settings(settings),
        actor,
    )


def delete_queue(namespace: str, name: str, with_deliveries: bool, actor: str) -> Statement[None]:
    return done(
        "headrace.delete_queue(%s, %s, %s::boolean, %s)", namespace, name, with_deliveries, actor
    )


def _settings(given: dict[str, Any]) -> str:
    if given.get("processing_interval") is not None:
        exact = seconds(given["processing_interval"], "processing_interval") * 1000
        given = {**given, "processing_interval": round(exact)}
    if given.get("lease") is not None:
        given = {**given, "lease": seconds(given["lease"], "lease")}
    if given.get("backoff") is not None:
        given = {**given, "backoff": policy(given["backoff"])}
    return encode(given, "the settings of a queue").decode()


def pause(namespace: str, name: str, actor: str) -> Statement[None]:
    return done("headrace.pause(%s, %s, %s)", namespace, name, actor)


def resume(namespace: str, name: str, actor: str) -> Statement[None]:
    return done("headrace.resume(%s, %s, %s)", namespace, name, actor)


def drain(namespace: str, name: str, actor: str) -> Statement[None]:
    return done("headrace.drain(%s, %s, %s)", namespace, name, actor)


def has_capacity(namespace: str, type: str | None, tags: list[str] | None) -> Statement[bool]:
    return Statement(
        "select headrace.has_capacity(%s, %s, %s::pg_catalog.text[])",
        (namespace, type, tags),
        lambda rows: rows[0][0],
    )
