"""A program in a process of its own that is talked to by lines, and never waited for without an end."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import IO

PATIENCE = 180.0  # seconds that a word is waited for
STOPPING = 10.0


class Program:
    """Its words come one line at a time; lines that begin with another word than the one waited for are passed over."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        complaints: IO[bytes],
    ) -> None:
        self._name = name
        self._complaints = complaints
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        self._rest = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def say(self, line: str) -> None:
        self._in.write(f"{line}\n".encode())
        self._in.flush()

    def heard(self, word: str) -> list[str]:
        """What follows this word, as soon as it has been said."""
        return first_heard([self], word)

    def stop(self) -> None:
        self._in.close()
        try:
            self._process.wait(STOPPING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._out.close()

    def fileno(self) -> int:
        return self._out.fileno()

    def said(self, word: str) -> list[str] | None:
        """What follows this word, if it was said in what has been read."""
        while b"\n" in self._rest:
            line, _, self._rest = self._rest.partition(b"\n")
            first, *rest = line.decode(errors="replace").split() or [""]
            if first == word:
                return rest
        return None

    def read(self, word: str) -> None:
        """More of what it says; this waits for it."""
        more = os.read(self.fileno(), 65536)
        if not more:
            raise RuntimeError(f"{self._name} ended before it said {word!r}{self.complained()}")
        self._rest += more

    def complained(self) -> str:
        return complaint(self._complaints)


def first_heard(programs: Sequence[Program], word: str) -> list[str]:
    """What follows this word, whichever says it first: one of several may get nothing to do."""
    deadline = time.monotonic() + PATIENCE
    while True:
        for program in programs:
            rest = program.said(word)
            if rest is not None:
                return rest
        ready, _, _ = select.select(programs, [], [], max(deadline - time.monotonic(), 0))
        if not ready:
            said = programs[0].complained()
            raise RuntimeError(f"{word!r} was not said within {PATIENCE:g} s{said}")
        for program in ready:
            program.read(word)


def complaint(of: IO[bytes]) -> str:
    """The end of what was written to standard error, on a line of its own."""
    of.seek(0)
    text = of.read().decode(errors="replace").strip()
    return f"\n{text[-2000:]}" if text else ""
