"""Time: what it makes due, and the one loop that keeps up with it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from datetime import datetime
from itertools import count
from time import monotonic
from typing import Any, Protocol

from headrace.engine.caller import Caller
from headrace.engine.memory import TICK_EVERY, Ticks
from headrace.engine.statement import Statement, Steps, Turns, ask, timed
from headrace.model import Tick

TICK_ROUNDS = 20  # at most, before a poll: other processes do the rest


logger = logging.getLogger("headrace")


def tick(since: datetime | None = None, upkeep: bool = False) -> Statement[Tick]:
    return Statement(
        "select due, expired, fired, kept_up, more, pg_catalog.timestamptz_send(at) "
        "from headrace.tick(%s::pg_catalog.timestamptz, %s::boolean)",
        (since or "-infinity", upkeep),
        lambda rows: Tick(*timed(rows[0], 5)),
    )


def tick_all(ticks: Ticks, rounds: int | None = None) -> Generator[Statement[Any], Any, None]:
    """Tick until nothing more is due, or so many times."""
    for _ in count() if rounds is None else range(rounds):
        done: Tick = yield tick(ticks.since)
        if not done.more:
            ticks.ticked(done.at)
            return


class Trouble(Protocol):
    """A loop reports here that it failed or works again, and learns how long to wait."""

    def failed(self, error: Exception) -> float:
        """Seconds until the next try."""

    def worked(self) -> None: ...


def keep_up(
    tick: Callable[[], Turns[None]],
    plan: Callable[[], Turns[None]],
    trouble: Trouble,
    is_over: Callable[[], bool],
    *,
    plan_every: float,
    plan_again: float = 0.0,
    every: float = TICK_EVERY,
) -> Turns[None]:
    """Tick every second, and have schedules planned ahead from time to time, until it is over. A
    step that fails is tried again: without the upkeep no retry would ever be due. A plan that
    failed is tried again after `plan_again` seconds at the earliest."""
    plan_at = 0.0
    while not is_over():
        try:
            yield from tick()
            if monotonic() >= plan_at:
                plan_at = monotonic() + plan_again
                yield from plan()
                plan_at = monotonic() + plan_every
        except Exception as error:
            pause = trouble.failed(error)
        else:
            trouble.worked()
            pause = every
        yield pause


class TimeVerbs(Caller):
    """Verbs about what time makes due."""

    def tick(self, *, upkeep: bool = False) -> Steps[Tick]:
        """Do what time has made due, everywhere; a client that polls does it by itself. `upkeep`
        also does the hourly part at once."""
        return ask(tick(None, upkeep))

    def catch_up(self) -> Steps[None]:
        """Tick, if the last tick was a second ago. A tick that fails is only logged: another
        process's tick does the same, and poll must go on."""
        ticks = self.memory.ticks
        if not ticks.take_turn():
            return
        try:
            yield from tick_all(ticks, TICK_ROUNDS)
        except Exception as error:
            if not ticks.is_failing:
                logger.warning("ticks fail: %s", error)
            ticks.is_failing = True
