"""Tokens of the HTTP API: made, listed, revoked, told from others."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from headrace.engine.arguments import moment, strings
from headrace.engine.caller import Caller
from headrace.engine.statement import Row, Statement, Steps, ask, done, timed
from headrace.model import Scope, Token

TOKEN_PREFIX = "hr_"  # identifies a leaked token as Headrace's


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
    """The rights of a valid token."""

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


def token_digest(token: str) -> bytes:
    """The digest that is stored instead of a token. The token's bits are random, so a slow hash
    would not make it harder to guess."""
    return hashlib.sha256(token.encode()).digest()


def new_secret() -> str:
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def new_token(
    secret: str,
    name: str,
    scopes: Sequence[Scope],
    namespaces: Sequence[str] | None,
    expires_at: datetime | None,
    actor: str,
) -> NewToken:
    return NewToken(
        name,
        token_digest(secret),
        strings(scopes, "scopes") or [],
        strings(namespaces, "namespaces"),
        None if expires_at is None else moment(expires_at, "expires_at"),
        actor,
    )


class TokenVerbs(Caller):
    """Verbs about tokens."""

    def create_token(
        self,
        name: str,
        scopes: Sequence[Scope],
        *,
        namespaces: Sequence[str] | None = None,
        expires_at: datetime | None = None,
        actor: str | None = None,
    ) -> Steps[str]:
        """Make a token of the HTTP API with these scopes, for these namespaces or for all, and
        return it. This is the only time that the token is shown: it is stored hashed."""
        token = new_secret()
        yield create_token(
            new_token(token, name, scopes, namespaces, expires_at, actor or self.worker)
        )
        return token

    def tokens(self) -> Steps[list[Token]]:
        """The tokens of the HTTP API, by name, with the revoked ones."""
        return ask(tokens())

    def revoke_token(self, name: str, *, actor: str | None = None) -> Steps[None]:
        """Revoke a token: within seconds no server accepts it any more, and its name is free
        again."""
        return ask(revoke_token(name, actor or self.worker))
