"""Tokens of the HTTP API, and roles bound to namespaces."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

import msgspec

Scope: TypeAlias = Literal["publish", "consume", "read", "admin"]
"""The rights of a token: publish events, claim and finish them, look, or everything."""


class Token(msgspec.Struct, frozen=True):
    """A token of the HTTP API, without its secret, which is kept nowhere."""

    id: int
    name: str
    scopes: tuple[Scope, ...]
    namespaces: tuple[str, ...] | None
    """The ones it is good for; None: all of them."""
    live: bool
    """It was not revoked and has not expired."""
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None


class BoundRole(msgspec.Struct, frozen=True):
    """A role of the database that works in some namespaces only."""

    role: str
    namespaces: tuple[str, ...]
    bound_at: datetime
    bound_by: str
