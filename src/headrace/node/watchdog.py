"""The watchdog of a worker: a small process that kills its parent when no code in the parent can
run.

A regular expression that backtracks for ever holds Python's global lock inside one call: no thread,
no signal handler and no timer of that process runs again. Python's C code still writes the number
of each signal into a socket, whose other end is here. So this process knows that its parent was
told to end. It also knows whether a thread of the parent still runs: that thread writes a line
every second.

Run as a script, by the name of this file: it imports nothing of the package, and as little as
possible of the standard library.
"""

import os
import select
import signal
import sys
import time

STEP = 0.25  # seconds between two looks
AFTER = 1.0  # seconds after the grace time
SILENCE = 3.0  # seconds without a word, for a process that is to end
SHORTEST = 10.0  # seconds without a line, for a process that got no signal: it may only be slow
SURE = 2.0  # Seconds for which a process that got no signal is watched closely before it is killed


class Watchdog:
    def __init__(self, parent: int, signals: int, words: int) -> None:
        self._parent = parent
        self._signals = signals
        self._words = words
        self._grace = 30.0
        self._limit = float("inf")
        self._running = ""
        self._silent = 0.0
        self._end_at: float | None = None

    def watch(self) -> None:
        """Until the parent has ended, or has closed its end."""
        while self._listen() and os.getppid() == self._parent:
            if self._is_stuck():
                self._kill()
                return

    def _listen(self) -> bool:
        began = time.monotonic()
        readable, _, _ = select.select([self._signals, self._words], [], [], STEP)
        if self._signals in readable and not self._hear_signals():
            return False
        if self._words in readable:
            self._silent = 0.0
            return self._hear_words()
        # A pause of this process is not the parent's silence: the machine may have slept.
        self._silent += min(time.monotonic() - began, 2 * STEP)
        return True

    def _hear_signals(self) -> bool:
        numbers = os.read(self._signals, 64)
        try:
            os.write(self._signals, numbers)  # which wakes the parent, if it can be woken
        except OSError:
            return False
        now = time.monotonic()
        for number in numbers:
            if number in (signal.SIGTERM, signal.SIGINT):
                soon = now + AFTER
                self._end_at = (
                    soon + self._grace if self._end_at is None else min(soon, self._end_at)
                )
        return bool(numbers)

    def _hear_words(self) -> bool:
        words = os.read(self._words, 65536).decode(errors="replace")
        if "\n" in words:
            last = words.rstrip("\n").rpartition("\n")[2]
            grace, limit, self._running = last.split(" ", 2)
            self._grace, self._limit = float(grace), max(SHORTEST, float(limit))
        return bool(words)

    def _is_stuck(self) -> bool:
        is_late = self._end_at is not None and time.monotonic() > self._end_at
        if is_late and self._silent > SILENCE:
            return not self._is_stopped()
        if self._silent > self._limit - SURE and self._is_stopped():
            self._silent = 0.0
        return self._silent > self._limit

    def _is_stopped(self) -> bool:
        """Whether it was stopped by a signal or a debugger: then it is silent, and not stuck."""
        try:
            with open(f"/proc/{self._parent}/stat") as file:  # noqa: PTH123 - pathlib is slow to import
                return file.read().rpartition(")")[2].split()[0] in "Tt"
        except OSError:
            pass
        with os.popen(f"ps -o state= -p {self._parent}") as state:
            return state.read().strip()[:1] in ("T", "t")

    def _kill(self) -> None:
        why = (
            f"it was told to end, and has not ended after {self._grace:g} s of grace"
            if self._end_at is not None
            else f"nothing in it has run for {self._silent:.0f} s, and its leases have expired"
        )
        about = f" Its last report: these handlers run: {self._running}." if self._running else ""
        sys.stderr.write(
            f"headrace: the worker {self._parent} is killed: {why}. A handler keeps all of "
            f"Python from running.{about} This is where it is:\n"
        )
        sys.stderr.flush()
        os.kill(
            self._parent, signal.SIGURG
        )  # to which faulthandler answers, also without the global lock
        select.select([], [], [], STEP)  # time.sleep fails where a library changes the clock
        os.kill(self._parent, signal.SIGKILL)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they are meant for the parent
    parent, signals, words = map(int, sys.argv[1:4])
    Watchdog(parent, signals, words).watch()


if __name__ == "__main__":
    main()
