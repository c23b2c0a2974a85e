"""Limits of one request, one token and one namespace."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.driver.explain import NoConnection


class ShareUsedUp(NoConnection):
    """A token or a namespace uses as many connections as it may."""


@dataclass(frozen=True)
class Limits:
    """The limits that the server was started with."""

    events: int = 10_000
    """Events that a request may publish."""
    requests: int = 1000
    """Requests per second of a token and of a namespace; 0: no limit."""
    streams: int = 100
    """Open streams of a token and of a namespace."""
    lease: float | None = None
    """Seconds that a claim lasts if neither it nor its queue has a lease; None: 60, as the engine
    has it."""


LIMITS = Limits()
