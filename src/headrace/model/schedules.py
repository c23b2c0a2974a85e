"""Scheduled tasks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec

from headrace.model.times import said_time

Missed: TypeAlias = Literal["coalesce", "catch_up", "skip"]
"""What to do with fires that were due while nothing was running: publish one event for the last of
them, one for each (of the last 100), or none. A fire less than a minute late is not missed."""


class ScheduledTask(msgspec.Struct, frozen=True):
    """An event that is published by cron expression."""

    task_id: str
    name: str
    cron_expression: str
    timezone: str
    event_type: str
    payload: Any
    event: Mapping[str, Any]
    """More fields of the event: tags, priority, …"""
    missed: Missed
    active: bool
    """False: it is paused."""
    next_fires: tuple[datetime, ...]
    """The next fires, as far as they are planned."""
    last_fire_at: datetime | None
    created_at: datetime
    updated_at: datetime


def scheduled_for(details: Mapping[str, Any]) -> datetime | None:
    return said_time(details, "scheduled_for")
