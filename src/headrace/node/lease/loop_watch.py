"""Sees from another thread when an event loop does not answer, and names what blocks it."""

from __future__ import annotations

import logging
import sys
import threading
import time
from asyncio import AbstractEventLoop, get_running_loop
from contextlib import suppress
from itertools import takewhile
from types import FrameType

logger = logging.getLogger("headrace")

OFTEN = 4  # questions in the time after which a loop counts as blocked


class LoopWatch:
    """Asks a loop again and again whether it runs. Logs a warning each time that it is blocked."""

    def __init__(self, loop: AbstractEventLoop, patience: float) -> None:
        self._loop = loop
        self._patience = patience
        self._interval = patience / OFTEN
        self._thread = _thread_of(loop)
        self._asked_at = 0.0
        self._answered_at = 0.0
        self._answered = True
        self._look_at = 0.0
        self._blocked = False

    @property
    def lag(self) -> float:
        """Seconds that the loop took to answer last time, or has not answered for."""
        return (self._answered_at if self._answered else time.monotonic()) - self._asked_at

    def look(self) -> float:
        """Check whether the loop has answered; returns the seconds until the next check."""
        now = time.monotonic()
        if self._answered:
            self._unblock()
            self._ask(now)
        elif now - self._look_at > self._patience / 2:
            self._asked_at = (
                now  # no check happened: the whole process was stopped, and the loop with it
            )
        elif now - self._asked_at >= self._patience and not self._blocked:
            self._blocked = True
            logger.warning(
                "the event loop has not answered for %.1f s: %s blocks it. Leases are kept "
                "meanwhile. Move blocking work into a plain function, which runs in a thread",
                now - self._asked_at,
                culprit(sys._current_frames().get(self._thread)),
            )
        self._look_at = now + self._interval
        return self._interval

    def _unblock(self) -> None:
        if self._blocked:
            self._blocked = False
            logger.info(
                "the event loop answers again, after %.1f s", self._answered_at - self._asked_at
            )

    def _ask(self, now: float) -> None:
        self._asked_at = now
        self._answered = False
        try:
            self._loop.call_soon_threadsafe(self._answer)
        except RuntimeError:  # it is closed
            self._answered, self._answered_at = True, now

    def _answer(self) -> None:
        self._thread = threading.get_ident()
        self._answered_at = time.monotonic()
        self._answered = True


def _thread_of(loop: AbstractEventLoop) -> int:
    """The thread of the loop, if the loop itself asks; else the loop will set it. 0: not known."""
    with suppress(RuntimeError):
        if get_running_loop() is loop:
            return threading.get_ident()
    return 0


def culprit(frame: FrameType | None) -> str:
    """The function that a loop called last, and where it is now."""
    called = list(takewhile(lambda frame: not _is_of(frame, "asyncio", "uvloop"), _stack(frame)))
    theirs = [frame for frame in called if not _is_of(frame, "headrace")] or called
    if not theirs:
        return "something"
    function, place = _name(theirs[-1]), _name(theirs[0])
    return function if len(theirs) == 1 else f"{function}, in {place},"


def _stack(frame: FrameType | None) -> list[FrameType]:
    """From the innermost outwards."""
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


def _is_of(frame: FrameType, *packages: str) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in packages


def _name(frame: FrameType) -> str:
    return f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})"
