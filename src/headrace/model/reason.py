"""Why a delivery is not running, or what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec

ReasonCode: TypeAlias = Literal[
    "ended",
    "in_progress",
    "lease_expired",
    "retry",
    "snoozed",
    "released",
    "delayed",
    "queue_paused",
    "queue_draining",
    "limited",
    "key_in_progress",
    "key_turn",
    "suspect",
    "unhandled",
    "in_line",
    "not_delivered",
    "no_queue",
    "expired",
]
"""The kinds of reasons, for programs: see `headrace.why` in docs/sql.md."""


class Reason(msgspec.Struct, frozen=True):
    """One reason why a delivery is not running, or what became of it."""

    queue: str | None
    """The queue of the delivery; None: no queue has the event."""
    code: ReasonCode
    message: str
    """The reason as a sentence about the event."""
    since: datetime | None
    """When it began, if that is known."""
    until: datetime | None
    """When it ends, if that is known."""
    about: Mapping[str, Any]
    """Its numbers and names, by code."""
