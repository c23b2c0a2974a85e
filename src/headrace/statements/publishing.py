"""Publishing: what the engine makes of a batch, and what it refuses."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple

from headrace.encoding import Batch
from headrace.errors import (
    HeadraceError,
    IdempotencyConflict,
    InvalidInput,
    InvalidPayload,
)
from headrace.model import (
    instant,
)
from headrace.statements.base import (
    TIMES,
    UNREADABLE,
    Row,
    Statement,
    explain,
)

_PLACE = re.compile(r"event (\d+) of the batch")
_OWNER = re.compile(r"the key is that of event (\d+)")


class Published(NamedTuple):
    ids: list[int]
    created_at: datetime
    """Of the first of them."""
    repeated: frozenset[int]
    """The places, from 0, of those whose idempotency key was used before."""
    pressure: bool


_PUBLISH = """\
select ids, pg_catalog.timestamptz_send(created_at), repeated, pressure
from headrace.publish(%s, %s::pg_catalog.jsonb)"""
_PUBLISH_ANYWAY = _PUBLISH[:-1] + ", enforce => false)"


def max_payload() -> Statement[int]:
    """How many bytes a payload may have here."""
    return Statement("select headrace.max_payload()", (), lambda rows: rows[0][0])


_PUBLISH_MANY = """\
select ids, pg_catalog.timestamptz_send(created_at), null::int[], pressure
from headrace.publish_many(%s, %s, %s::pg_catalog.jsonb)"""
_PUBLISH_MANY_ANYWAY = _PUBLISH_MANY[:-1] + ", enforce => false)"


def publish(namespace: str, batch: Batch, enforce: bool = True) -> Statement[Published]:
    """enforce: a queue that is full refuses the events; else it only tells of pressure."""
    if batch.type is None:
        sql = _PUBLISH if enforce else _PUBLISH_ANYWAY
        params: tuple[str, ...] = (namespace, batch.document)
    else:
        sql = _PUBLISH_MANY if enforce else _PUBLISH_MANY_ANYWAY
        params = (namespace, batch.type, batch.document)
    return Statement(
        sql,
        params,
        partial(_read_published, batch.order),
        partial(_explain_publish, batch),
    )


# Past the fields' types and lengths: a record as PostgreSQL sends it.
_record = struct.Struct(">12xq8x8s8x?").unpack
_PUBLISH_ONE = "select pg_catalog.record_send(headrace.publish_one(%s, %s, %s::pg_catalog.jsonb))"
_PUBLISH_ONE_ANYWAY = _PUBLISH_ONE[:-2] + ", enforce => false))"


def publish_one(
    namespace: str, type: str, payload: str, enforce: bool = True
) -> Statement[Published]:
    """Publish an event that has nothing but a type and a payload."""
    return Statement(
        _PUBLISH_ONE if enforce else _PUBLISH_ONE_ANYWAY,
        (namespace, type, payload),
        _read_one,
        _explain_one,
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
    # Where there are keys, there is no order but that of the places.
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
