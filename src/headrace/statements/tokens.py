"""The tokens of the HTTP API: made, listed, revoked, told from others."""

from __future__ import annotations

from typing import NamedTuple

from headrace.model import (
    Token,
)
from headrace.statements.base import (
    Row,
    Statement,
    done,
    timed,
)


class NewToken(NamedTuple):
    """The arguments of create_token, in the engine's order."""

    name: str
    digest: bytes
    scopes: list[str]
    namespaces: list[str] | None
    expires_at: str | None
    actor: str


def create_token(token: NewToken) -> Statement[int]:
    return Statement(
        "select headrace.create_token(%s, %s::pg_catalog.bytea, %s::pg_catalog.text[], %s::pg_catalog.text[], %s::pg_catalog.timestamptz, %s)",
        token,
        lambda rows: rows[0][0],
    )


def tokens() -> Statement[list[Token]]:
    return Statement(
        "select id, name, scopes, namespaces, live, pg_catalog.timestamptz_send(created_at), created_by, "
        "pg_catalog.timestamptz_send(expires_at), pg_catalog.timestamptz_send(revoked_at), revoked_by "
        "from headrace.tokens()",
        (),
        lambda rows: [_token(row) for row in rows],
    )


def _token(row: Row) -> Token:
    values = timed(row, 5, 7, 8)
    values[2], values[3] = tuple(row[2]), None if row[3] is None else tuple(row[3])
    return Token(*values)


def revoke_token(name: str, actor: str) -> Statement[None]:
    return done("headrace.revoke_token(%s, %s)", name, actor)


class LiveToken(NamedTuple):
    """What a token that is good now is good for."""

    name: str
    scopes: frozenset[str]
    namespaces: frozenset[str] | None


def live_tokens() -> Statement[dict[bytes, LiveToken]]:
    """By digest."""
    return Statement(
        "select digest, name, scopes, namespaces from headrace.live_tokens()",
        (),
        lambda rows: {
            bytes(digest): LiveToken(
                name, frozenset(scopes), None if namespaces is None else frozenset(namespaces)
            )
            for digest, name, scopes, namespaces in rows
        },
    )
