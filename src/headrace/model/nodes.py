"""Nodes, workers, and the types that no node handles."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec


class Worker(msgspec.Struct, frozen=True):
    """A worker that holds claims, or has ended an attempt lately."""

    worker_id: str
    holds: int
    oldest_claim_at: datetime | None
    lease_expires_at: datetime | None
    """The end of the lease that ends first."""
    last_seen_at: datetime | None
    """Its last claim or end of an attempt; heartbeats do not count."""
    completed: int
    failed: int
    released: int
    abandoned: int
    since: datetime
    """The start of the period of the counts."""


class NodeInfo(msgspec.Struct, frozen=True):
    """A registered node."""

    node_id: str
    alive: bool
    """The node has not stopped, its last heartbeat is younger than 90 seconds, and its connection
    is not known to be lost."""
    display_name: str | None
    description: str | None
    metadata: Mapping[str, Any]
    handles: tuple[str, ...]
    worker_id: str
    """The name of the worker in its claims."""
    instance: str
    """Identifies the current run of its process."""
    registered_at: datetime
    """When its id was registered for the first time."""
    started_at: datetime
    """When its current process registered."""
    last_heartbeat: datetime
    stopped_at: datetime | None


class UnhandledType(msgspec.Struct, frozen=True):
    """A type with deliveries that wait in a queue while no live node handles it."""

    queue: str
    type: str
    deliveries: int
    """Deliveries that could be claimed, counted up to about 10,000; one for each ordering key."""
    oldest_at: datetime
    since: datetime | None
    """When this was first noticed; None: such events are kept, so it is not tracked."""
