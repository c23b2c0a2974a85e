"""Ctrl-C, SIGTERM and SIGHUP: they end a command in order, whenever they arrive.

SIGHUP (the terminal is closed) counts as SIGTERM, here and nowhere else, unless it was ignored
at the start, as under nohup. `timeout` and make send every signal twice, to the process and to
its group: a signal within a second of another is the same request, not a second one.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SAME_REQUEST = 1.0  # seconds

_TELLING = (signal.SIGINT, signal.SIGTERM)


class Requests:
    """The requests to end that this process has received."""

    def __init__(self) -> None:
        self._last: float | None = None
        self.terminated = False
        """SIGTERM interrupted the command."""

    @property
    def any(self) -> bool:
        return self._last is not None

    def is_new(self) -> bool:
        """Count a signal; False: it belongs to the request before."""
        now = time.monotonic()
        if self._last is not None and now - self._last < SAME_REQUEST:
            return False
        self._last = now
        return True

    def forget(self) -> None:
        self._last, self.terminated = None, False


_requests = Requests()


@contextmanager
def ending_in_order() -> Iterator[Requests]:
    """During a whole command: SIGTERM unwinds it as Ctrl-C does, so that the command ends
    everything it started. While the command unwinds, more signals change nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield _requests
        return

    def terminate(number: int, frame: FrameType | None) -> None:
        if not _requests.any:
            _requests.terminated = _requests.is_new()
            raise KeyboardInterrupt

    terminals = [fd for fd in (1, 2) if os.isatty(fd)]

    def hang_up(number: int, frame: FrameType | None) -> None:
        for fd in terminals:
            if not os.isatty(fd):  # the terminal is gone: a write to it must not break the cleanup
                os.dup2(os.open(os.devnull, os.O_WRONLY), fd)
        os.kill(os.getpid(), signal.SIGTERM)

    _requests.forget()
    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, terminate)}
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, hang_up)
    try:
        yield _requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def note(number: int) -> None:
    """For other signal handlers: the exit code must tell that SIGTERM ended the command."""
    _requests.terminated = _requests.terminated or number == signal.SIGTERM


@contextmanager
def on_signals(told: Callable[[], object]) -> Iterator[None]:
    """Call `told` in the main thread for each request to end."""

    def handle(number: int, frame: FrameType | None) -> None:
        if _requests.is_new():
            told()

    before = {number: signal.signal(number, handle) for number in _TELLING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """Set `stop` on the first signal; a second one interrupts at once."""

    def told() -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    with on_signals(told):
        yield
