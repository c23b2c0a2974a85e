"""What one request, one token and one namespace may take of a server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """As they were set when the server was started."""

    events: int = 10_000
    """That a request publishes."""


LIMITS = Limits()
