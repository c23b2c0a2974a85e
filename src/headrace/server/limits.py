"""What one request, one token and one namespace may take of a server."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.explaining import NoConnection


class ShareUsedUp(NoConnection):
    """A token or a namespace has as many connections at work as it may have."""


@dataclass(frozen=True)
class Limits:
    """As they were set when the server was started."""

    events: int = 10_000
    """That a request publishes."""
    requests: int = 1000
    """A second, of a token and of a namespace; 0: as many as they like."""
    streams: int = 100
    """At once, of a token and of a namespace."""
    lease: float | None = None
    """Seconds that a claim lasts where neither it nor its queue says so; None: what the engine says, 60."""


LIMITS = Limits()
