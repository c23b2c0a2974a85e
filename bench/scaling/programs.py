"""Programs that talk by lines: told to go, listened to in the background, ended by closing their input."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import tempfile
import threading
from types import TracebackType
from typing import Self

from bench.cases.nodes import environment
from bench.measure import cpu_of

PATIENCE = 60.0


class Program:
    """One of bench.workers, in a process of its own."""

    def __init__(self, module: str, dsn: str, *arguments: object) -> None:
        self.name = module
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the program)
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"bench.workers.{module}", *map(str, arguments)],
            env={**os.environ, **environment(dsn)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
        )
        self._lines: queue.SimpleQueue[list[str] | None] = queue.SimpleQueue()
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listening.join()
        self._process.stdout.close()
        self._complaints.close()

    @property
    def cpu(self) -> float:
        return cpu_of(self._process.pid)

    def tell(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def hear(self, word: str) -> str:
        """What follows the word in the next line that begins with it."""
        while True:
            said = self._next(PATIENCE)
            if said[0] == word:
                return said[-1]

    def heard(self, word: str) -> list[str]:
        """The same for all lines so far."""
        found = []
        while not self._lines.empty():
            said = self._next(0)
            if said[0] == word:
                found.append(said[-1])
        return found

    def _next(self, patience: float) -> list[str]:
        try:
            said = self._lines.get(timeout=patience) if patience else self._lines.get_nowait()
        except queue.Empty:
            raise RuntimeError(f"{self.name}: nothing was heard of it for {patience:g} s") from None
        if said is None:
            self._complaints.seek(0)
            complained = self._complaints.read().decode(errors="replace")[-2000:]
            raise RuntimeError(f"{self.name}: it has ended\n{complained}")
        return said

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n").split(" ", 1))
        self._lines.put(None)
