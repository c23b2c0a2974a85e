"""Publishes events once more, at a rate."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import psycopg

from headrace.cli.failing import Interrupted, continued, is_away
from headrace.cli.progress import Bar, stepping
from headrace.cli.showing import count
from headrace.client import EventQueue
from headrace.errors import HeadraceError, NotStored
from headrace.model import Event, NewEvent

BATCH = 100  # events that are published, and committed, together


def arguments(event: Event) -> dict[str, Any]:
    """What it was published with, but for when it was due and its idempotency key."""
    values = {name: getattr(event, name, None) for name in NewEvent.__struct_fields__}
    if event.title == event.type:
        del values["title"]
    return {name: value for name, value in values.items() if value not in (None, ())}


class Again:
    """Events that are published once more, and how far that has come."""

    def __init__(self, target: EventQueue, rate: float | None, last: int | None) -> None:
        self._target, self._rate = target, rate
        self._most = BATCH if rate is None else max(1, min(BATCH, int(rate / 2)))
        self._last = last  # all up to here are published
        self._trying: int | None = None  # and perhaps up to here
        self.done = 0

    def publish_all(self, events: Iterator[Event]) -> None:
        began, batch = time.monotonic(), list[Event]()
        try:
            with Bar("Publishing again", None) as bar:
                for event in events:
                    batch.append(event)
                    if len(batch) == self._most:
                        self._publish(batch, bar)
                        batch = []
                        if self._rate is not None:
                            time.sleep(max(0.0, began + self.done / self._rate - time.monotonic()))
                if batch:
                    self._publish(batch, bar)
        except KeyboardInterrupt:
            raise Interrupted(f"Interrupted: {self._so_far()}") from None
        except (HeadraceError, psycopg.Error) as error:
            away = isinstance(error, psycopg.Error) and is_away(error)
            if isinstance(error, NotStored) or not away:
                self._trying = None  # it was told: not done
            raise continued(error, self._so_far()) from error

    def _publish(self, batch: list[Event], bar: Bar) -> None:
        self._trying = batch[-1].id
        with stepping(bar):
            self._target.publish_many([arguments(event) for event in batch], enforce=True)
            self._last, self._trying = batch[-1].id, None
            self.done += len(batch)
            bar.at(self.done)

    def _so_far(self) -> str:
        done = f"{count(self.done, 'event')} published again"
        if self._trying is not None:
            return f"{done}, and whether those up to {self._trying} were is not known."
        after = "" if self._last is None else f"; go on with --from-checkpoint {self._last}"
        return f"{done}{after}."
