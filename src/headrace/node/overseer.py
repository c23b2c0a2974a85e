"""Makes the process of `Node.run` end on its signal, even if its handlers do not.

A node stops in its event loop. A handler that blocks the loop prevents that, so a thread watches
the loop. A handler may also keep every thread from running, so another process watches the thread:
see watchdog.py.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, Self

from headrace.engine import fork
from headrace.node.lease.loop_watch import culprit

logger = logging.getLogger("headrace.node")

SIGNALS = (signal.SIGTERM, signal.SIGINT)
WATCHDOG = Path(__file__).with_name("watchdog.py")
PING = 1.0  # seconds between two words to the watchdog
AFTER = 1.0  # seconds after the grace time until the loop is asked whether it is there
ANSWER = 1.0  # seconds for its answer
LAST_WORDS = 0.5  # seconds for telling what is handed back
LEAVING = (
    1.0  # seconds for tasks and threads to end that are left in the loop when the node has stopped
)
CUT_OFF = 4
"""The exit code of a worker that ended itself, because handlers could not be stopped."""


class Watched(Protocol):
    """A running node, as the overseer sees it."""

    def under_way(self) -> Sequence[str]:
        """The handlers that run."""

    def is_overdue(self) -> bool:
        """Whether a handler has not ended a grace time after its timeout."""

    def hand_back(self) -> Callable[[float], bool]:
        """Report how all attempts end, in place of an event loop that is blocked. Returns a
        function that waits for that for some seconds, and returns whether it was done."""


class Overseer:
    """Use `with Overseer(…) as overseer:` around a loop. In the loop call `overseer.attend(told)`:
    the overseer then calls `told` with the number of signals so far. `grace` returns the seconds of
    grace; `limit` the seconds for which nothing in the process may run, without the grace time;
    `node` the node while it runs."""

    def __init__(
        self,
        grace: Callable[[], float],
        limit: Callable[[], float],
        node: Callable[[], Watched | None],
    ) -> None:
        self._grace = grace
        self._limit = limit
        self._node = node
        self._loop: asyncio.AbstractEventLoop | None = None
        self._told: Callable[[int], None] = lambda count: None
        self._handled = self._echoed = self._count = 0
        self._deadline: float | None = None
        self._leave_at: float | None = None
        self._code = 0
        self._closing = self._is_forked = False
        self._main = threading.get_ident()
        self._before: dict[int, Any] = {}
        self._wakeups_before = self._wakeups_of_loop = -1
        self._signals, theirs = socket.socketpair()
        self._signals.setblocking(False)
        heard, self._words = os.pipe()
        os.set_blocking(self._words, False)
        self._watchdog = self._start_watchdog(theirs, heard)
        theirs.close()
        os.close(heard)
        self._thread = threading.Thread(target=self._run, name="headrace overseer", daemon=True)

    def _start_watchdog(self, theirs: socket.socket, heard: int) -> subprocess.Popen[bytes] | None:
        fds = (theirs.fileno(), heard)
        command = [sys.executable, "-I", "-S", str(WATCHDOG), str(os.getpid()), *map(str, fds)]
        if getattr(sys, "frozen", False) or not sys.executable:
            return None  # the executable is the program itself
        try:
            nothing = subprocess.DEVNULL
            return subprocess.Popen(command, stdin=nothing, stdout=nothing, pass_fds=fds)
        except OSError as error:
            logger.warning(
                "the node runs without a watchdog, because the watchdog could not be started: %s",
                error,
            )
            return None

    def __enter__(self) -> Self:
        self._wakeups_before = signal.set_wakeup_fd(-1)
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._handle)
        with suppress(OSError, ValueError, RuntimeError):
            faulthandler.register(signal.SIGURG, file=2, all_threads=True)
        fork.register(self)
        self._ping()  # before any handler runs
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._is_forked:
            return
        self._closing = True
        self._restore_signals()
        with suppress(OSError, ValueError):
            signal.set_wakeup_fd(self._wakeups_before)
        with suppress(OSError, ValueError, RuntimeError):
            faulthandler.unregister(signal.SIGURG)
        self._thread.join(ANSWER)
        os.close(self._words)
        self._signals.close()
        if self._watchdog is not None:
            # OSError: wait() uses time.sleep, which fails where a library changes the clock
            # (libfaketime).
            with suppress(subprocess.TimeoutExpired, OSError):
                self._watchdog.wait(ANSWER)

    def after_fork(self) -> None:
        """A child has signals of its own: without this, its SIGTERM would be written to the
        parent's watchdog. And the watchdog waits until every process that can write to it has
        ended."""
        if not (self._closing or self._is_forked):
            self._is_forked = True
            self._restore_signals()
            os.close(self._words)
            self._signals.close()

    def _restore_signals(self) -> None:
        with suppress(ValueError):
            signal.set_wakeup_fd(-1)
            for number, before in self._before.items():
                signal.signal(number, before or signal.SIG_DFL)

    def attend(self, told: Callable[[int], None]) -> None:
        """Watch this loop from now on. Called in the loop, because a loop takes the descriptor for
        signals when it begins to run."""
        self._told = told
        self._loop = asyncio.get_running_loop()
        if self._watchdog is not None:
            self._wakeups_of_loop = signal.set_wakeup_fd(
                self._signals.fileno(), warn_on_full_buffer=False
            )
        if self._count:
            told(self._count)

    def leave(self, code: int = 0) -> None:
        """The node has stopped. The process ends soon, also if something in its loop does not."""
        self._code = code
        self._leave_at = time.monotonic() + LEAVING

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Runs in the main thread, as soon as that runs Python. The watchdog's echo may be faster,
        or this may never run."""
        self._handled += 1
        self._signalled()

    def _signalled(self) -> None:
        count = max(self._handled, self._echoed)
        if count <= self._count:
            return
        self._count = count
        self._deadline = time.monotonic() + AFTER + (self._grace() if count == 1 else 0)
        if self._loop is not None:
            with suppress(RuntimeError):  # it is closed
                self._loop.call_soon_threadsafe(self._told, count)

    def _run(self) -> None:
        attended = [self._signals]
        while not self._closing:
            self._ping()
            readable, _, _ = select.select(attended, [], [], PING / 4 if self._is_ending else PING)
            if readable and not self._hear():
                attended = []
            self._look()

    @property
    def _is_ending(self) -> bool:
        return self._deadline is not None or self._leave_at is not None

    def _hear(self) -> bool:
        try:
            numbers = self._signals.recv(64)
        except OSError:
            return True
        if not numbers and not self._closing and self._loop is not None:
            logger.warning("the watchdog of this process has ended; the node goes on without it")
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(signal.set_wakeup_fd, self._wakeups_of_loop)
        self._echoed += sum(number in SIGNALS for number in numbers)
        self._signalled()
        return bool(numbers)

    def _ping(self) -> None:
        grace = self._grace()
        words = f"{grace} {self._limit() + grace} {self._under_way()[:1000]}".replace("\n", " ")
        with suppress(OSError):  # the watchdog has ended, or has not read the last words
            os.write(self._words, f"{words}\n".encode())

    def _under_way(self) -> str:
        node = self._node()
        return "" if node is None else ", ".join(node.under_way())

    def _look(self) -> None:
        now = time.monotonic()
        if self._leave_at is not None and now > self._leave_at and not self._closing:
            self._end(
                "the node has stopped, but a task or thread that a handler began has not",
                self._code,
            )
        node = self._node()
        is_late = self._deadline is not None and now > self._deadline
        is_late = is_late or (node is not None and node.is_overdue())
        if is_late and not self._loop_answers():
            blocks = culprit(sys._current_frames().get(self._main))
            if node is not None:
                self._wait(node.hand_back(), LAST_WORDS)
            self._end(f"the event loop does not answer: {blocks} blocks it", CUT_OFF)

    def _wait(self, told: Callable[[float], bool], seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not told(min(PING, seconds)):
            self._ping()

    def _loop_answers(self) -> bool:
        answered = threading.Event()
        if self._loop is None or self._closing:
            return True
        try:
            self._loop.call_soon_threadsafe(answered.set)
        except RuntimeError:  # it is closed
            return True
        return answered.wait(ANSWER)

    def _end(self, why: str, code: int) -> None:
        """End the process now. Nothing is called that would wait for a handler: no exit function,
        no join of a thread."""
        self._ping()
        running = self._under_way()
        logger.critical(
            "the process ends with exit code %d: %s%s",
            code,
            why,
            f". Handlers that are cut off: {running}" if running else "",
        )
        for handler in logging.getLogger().handlers:
            with suppress(Exception):
                handler.flush()
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(code)
