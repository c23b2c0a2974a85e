"""The context of a running handler: its knowledge and its actions beyond the event."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from headrace.engine.encoding import fields_of
from headrace.model import Claimed, Event, NewEvent


@dataclass(frozen=True, slots=True)
class Means:
    """The functions by which the contexts of a node work; those of async handlers are awaited."""

    lease: float
    renewed_at: Callable[[int], float]
    """When a lease was last renewed, by the monotonic clock."""
    publish: Callable[..., Any]
    """Of a NewEvent, `connection` and `enforce`."""
    save: Callable[[Claimed, Any, Any], Any]
    """Takes a claim, the progress to keep, and the connection whose transaction it joins, or None.
    """
    producer: str | None = None
    """The node, as the events say that it emits."""


class Context(msgspec.Struct, eq=False):
    """The execution of one event by a plain handler; `cancelled` and `lost` may change while it
    runs.

    Made when a handler asks for it: by name, or by `node.emit`.
    """

    event: Claimed
    _means: Means
    _connection: Any = None
    progress: Any = None
    """The progress that was saved last, by this attempt or one before it; None: nothing."""
    cancelled: bool = False
    """It should end now: the node stops, its time is up or its lease is lost."""
    lost: bool = False
    """The lease is lost: another worker may have the event by now."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.event!r}>"

    @property
    def attempt(self) -> int:
        """How often the event was claimed, this time included."""
        return self.event.attempt

    @property
    def remaining(self) -> float:
        """Seconds that are left of the lease, if it were not renewed again."""
        if self.lost:
            return 0.0
        age = time.monotonic() - self._means.renewed_at(self.event.lease)
        return max(0.0, self._means.lease - age)

    def emit(
        self,
        type: str | NewEvent = "event",
        payload: Any = None,
        *,
        connection: Any = None,
        enforce: bool = False,
        **fields: Any,
    ) -> Event:
        """Publish an event that this one has caused, with the arguments of `publish`. A handler
        that asked for its connection publishes in its transaction. If a NewEvent names no cause or
        no producer, this event and this node are filled in."""
        return self._published(type, payload, connection, enforce, fields)  # type: ignore[no-any-return]

    def save(self, progress: Any) -> None:
        """Keep a JSON value for the next attempt, should there be one; it replaces the value that
        was saved before. A handler that asked for its connection saves in its transaction, so that
        the value is kept if that commits."""
        self._means.save(self.event, progress, self._connection)
        self.progress = progress

    def cancel(self, *, lost: bool = False) -> None:
        """Tell the handler to end. May be called by any thread."""
        self.lost = self.lost or lost
        self.cancelled = True

    def _published(
        self,
        type: str | NewEvent,
        payload: Any,
        connection: Any,
        enforce: bool,
        fields: dict[str, Any],
    ) -> Any:
        said = fields_of(type, payload, fields)
        filled_in = {"producer": self._means.producer, **caused_by(self.event, said)}
        event = NewEvent(**said | filled_in)
        joined = self._connection if connection is None else connection
        return self._means.publish(event, connection=joined, enforce=enforce)


class AsyncContext(Context, eq=False):
    """The execution of one event by an async handler."""

    async def emit(  # type: ignore[override]
        self,
        type: str | NewEvent = "event",
        payload: Any = None,
        *,
        connection: Any = None,
        enforce: bool = False,
        **fields: Any,
    ) -> Event:
        """As Context.emit."""
        published: Awaitable[Event] = self._published(type, payload, connection, enforce, fields)
        return await published

    async def save(self, progress: Any) -> None:  # type: ignore[override]
        """As Context.save."""
        await self._means.save(self.event, progress, self._connection)
        self.progress = progress


def caused_by(event: Claimed, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of an event that another has caused: what is not given follows from that one."""
    details = event.details
    linked = {
        "correlation_id": details.get("correlation_id") or str(event.id),
        "causation_id": str(event.id),
        "trace_id": details.get("trace_id"),
    }
    return linked | {name: value for name, value in fields.items() if value is not None}
