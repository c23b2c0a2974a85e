"""What an administrator does: to namespaces, to deliveries, to events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from headrace.arguments import array
from headrace.encoding import encode
from headrace.model import (
    AdminAction,
    BoundRole,
    Namespace,
    instant,
    told,
)
from headrace.statements.base import (
    Row,
    Statement,
    done,
)


def create_namespace(
    namespace: str, metadata: Mapping[str, Any] | None = None, actor: str | None = None
) -> Statement[bool]:
    return Statement(
        "select headrace.create_namespace(%s, %s::pg_catalog.jsonb, %s)",
        (namespace, encode(metadata or {}, "the metadata of a namespace").decode(), actor),
        lambda rows: rows[0][0],
    )


def namespaces() -> Statement[list[Namespace]]:
    return Statement(
        "select name, unhandled, metadata::pg_catalog.text, queues, pg_catalog.timestamptz_send(created_at), "
        "unhandled_after from headrace.namespaces()",
        (),
        lambda rows: [
            Namespace(name, unhandled, told(metadata), queues, instant(created_at), after)
            for name, unhandled, metadata, queues, created_at, after in rows
        ],
    )


def change_namespace(namespace: str, settings: dict[str, Any], actor: str) -> Statement[None]:
    return Statement(
        "select headrace.change_namespace(%s, %s::pg_catalog.jsonb, %s)",
        (namespace, encode(settings, "the settings").decode(), actor),
        lambda rows: None,
    )


def delete_namespace(namespace: str, with_deliveries: bool, actor: str) -> Statement[None]:
    return Statement(
        "select headrace.delete_namespace(%s, %s::boolean, %s)",
        (namespace, with_deliveries, actor),
        lambda rows: None,
    )


def bind_role(role: str, namespaces: list[str], actor: str) -> Statement[None]:
    return done("headrace.bind_role(%s, %s::pg_catalog.text[], %s)", role, namespaces, actor)


def unbind_role(role: str, actor: str) -> Statement[bool]:
    return Statement("select headrace.unbind_role(%s, %s)", (role, actor), lambda rows: rows[0][0])


def bound_roles() -> Statement[list[BoundRole]]:
    return Statement(
        "select role, namespaces, pg_catalog.timestamptz_send(bound_at), bound_by "
        "from headrace.bound_roles()",
        (),
        lambda rows: [
            BoundRole(role, tuple(namespaces), instant(at), by) for role, namespaces, at, by in rows
        ],
    )


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


class Step(NamedTuple):
    """What a step of redrive or purge has answered: the next one goes on from there."""

    started_at: datetime
    done: int
    more: bool


def redrive(
    namespace: str,
    queue: str,
    ids: Sequence[int] | None,
    types: list[str] | None,
    fingerprint: str | None,
    rate: float | None,
    reason: str,
    actor: str,
    last: Step | None = None,
) -> Statement[Step]:
    return Statement(
        "select pg_catalog.timestamptz_send(started_at), done, more "
        "from headrace.redrive(%s, %s, %s::bigint[], %s::pg_catalog.text[], %s, %s::pg_catalog.float8, %s, %s, "
        "started_at => %s::pg_catalog.timestamptz, done => %s::bigint)",
        (
            *(namespace, queue, None if ids is None else array(ids), types, fingerprint),
            *(rate, reason, actor),
            *((last.started_at, last.done) if last else (None, 0)),
        ),
        _read_step,
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
        _read_step,
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


def _read_step(rows: list[Row]) -> Step:
    started_at, done, more = rows[0]
    return Step(instant(started_at), done, more)
