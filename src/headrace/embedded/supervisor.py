"""The supervisor: a thread that starts the embedded server again when it has died, and keeps its
log short.

Every process that uses a server has one. They agree through gate.lock: the first supervisor
starts the server, and the others find it running.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from typing import Protocol

from headrace.errors import EmbeddedError
from headrace.model.pauses import NO_JITTER, Pauses

LOOK = 0.5  # seconds between two looks at the server
LONGEST = 8.0  # seconds between two tries to start one that does not start, or does not stay
STEADY = 60.0  # seconds after which a server that was started again counts as one that stays

logger = logging.getLogger("headrace.embedded")

_NUMBERS = re.compile(r"\d+")


class NotStarted(EmbeddedError):
    """The server ended while it was starting; `why` is its last message."""

    def __init__(self, said: str, why: str) -> None:
        super().__init__(said)
        self.why = why


class Supervised(Protocol):
    """A server as its supervisor sees it."""

    @property
    def name(self) -> str: ...
    @property
    def is_in_use(self) -> bool:
        """Whether this process still uses the data folder that it opened."""

    @property
    def is_alive(self) -> bool:
        """Whether any process of the server lives."""

    def revive(self) -> None:
        """Start it again; a try takes a few seconds at most, so that its user can close it."""

    def shorten_log(self) -> None: ...


class Supervisor:
    """Logs one line when the server has ended, one when it cannot be started, one when it runs
    again."""

    def __init__(self, server: Supervised) -> None:
        self._server = server
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._down_since: float | None = None
        self._revived_at = -STEADY
        self._pauses = Pauses(2 * LOOK, LONGEST, jitter=NO_JITTER)
        self._pause = LOOK
        self._why: str | None = None

    def begin(self) -> None:
        """Start the thread. A second call, also in a forked child, goes on with it or starts
        another."""
        if self._thread is not None and self._thread.is_alive():
            return
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="headrace postgres", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._thread = None

    def _watch(self) -> None:
        pause = LOOK
        while not self._over.wait(pause):
            try:
                if not self._server.is_in_use:
                    return  # the folder was deleted: starting a server would make it again
                pause = self._look()
            except OSError:  # no descriptor is left, perhaps
                pause = LOOK

    def _look(self) -> float:
        """Seconds until the next look."""
        if self._down_since is None:
            if self._server.is_alive:
                self._server.shorten_log()
                return LOOK
            self._ended()
        try:
            self._server.revive()
        except EmbeddedError as error:
            return self._failed(error)
        self._runs_again()
        return self._pause

    def _ended(self) -> None:
        self._down_since = time.monotonic()
        self._why = None
        if self._down_since - self._revived_at > STEADY:
            self._calm_down()
        logger.warning("%s has ended; starting it again", self._server.name)

    def _failed(self, error: EmbeddedError) -> float:
        if self._server.is_alive:
            return LOOK  # it recovers, and will answer later
        why = error.why if isinstance(error, NotStarted) else str(error)
        kind = _NUMBERS.sub("", why)  # the same reason names another file, or process, each time
        if kind != self._why:
            logger.warning(
                "%s does not start: %s; trying again every few seconds", self._server.name, why
            )
        self._why = kind
        self._pause = self._pauses.next()
        return self._pause

    def _runs_again(self) -> None:
        assert self._down_since is not None
        now = time.monotonic()
        logger.warning(
            "%s runs again after %.1f s; all committed data is there",
            self._server.name,
            now - self._down_since,
        )
        # One that dies soon again is not started in a tight loop.
        if now - self._revived_at < STEADY:
            self._pause = self._pauses.next()
        else:
            self._calm_down()
        self._down_since, self._revived_at = None, now

    def _calm_down(self) -> None:
        self._pauses.reset()
        self._pause = LOOK
