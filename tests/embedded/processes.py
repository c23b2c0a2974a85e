"""Processes that share an embedded PostgreSQL, and what can be seen of it from outside."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.embedded.locks import FileLock

PROGRAM = Path(__file__).with_name("program.py")
PATIENCE = 60.0


class Refused(Exception):
    """The process answered with an error."""


class Process:
    """One process with one EmbeddedPostgres; see program.py."""

    def __init__(
        self,
        data: Path | None,
        *,
        kind: str = "EmbeddedPostgres",
        user: int | None = None,
        binaries: Path | None = None,
        timeout: float = PATIENCE,
        unreaped: bool = False,
        cwd: Path | None = None,
        wrapped_in: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        arguments = [
            kind,
            user,
            None if data is None else str(data),
            None if binaries is None else str(binaries),
            timeout,
            unreaped,
        ]
        self._popen = subprocess.Popen(
            [*wrapped_in, sys.executable, PROGRAM, json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env={**os.environ, **(environment or {})},
        )

    @property
    def pid(self) -> int:
        return self._popen.pid

    def order(self, do: str, **details: object) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write(json.dumps({"do": do, **details}) + "\n")
        self._popen.stdin.flush()

    def answer(self) -> Any:
        assert self._popen.stdout is not None
        answer = json.loads(self._popen.stdout.readline())
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]

    def ask(self, do: str, **details: object) -> Any:
        self.order(do, **details)
        return self.answer()

    def start(self) -> str:
        dsn: str = self.ask("start")
        return dsn

    def query(self, sql: str) -> Any:
        return self.ask("query", sql=sql)

    def close(self) -> bool:
        closed: bool = self.ask("close")
        return closed

    def leave(self) -> None:
        """Let it end as a program does that has nothing more to do."""
        assert self._popen.stdin is not None
        self._popen.stdin.close()
        assert self._popen.wait(PATIENCE) == 0

    def kill(self) -> None:
        self._popen.send_signal(signal.SIGKILL)
        self._popen.wait(PATIENCE)

    def discard(self) -> None:
        self._popen.kill()
        self._popen.wait(PATIENCE)
        for stream in (self._popen.stdin, self._popen.stdout):
            if stream is not None and not stream.closed:
                stream.close()


def eventually(condition: Callable[[], object], patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"{condition} has not come true"
        time.sleep(0.01)


def is_running(data: Path) -> bool:
    """Whether any process of PostgreSQL lives in the data folder."""
    return is_locked(data / "server.lock")


def is_locked(path: Path) -> bool:
    lock = FileLock(path)
    try:
        return not lock.seize()
    finally:
        lock.release()


def postmaster(data: Path) -> int:
    return int((data / "pg" / "postmaster.pid").read_text().split("\n")[0])


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777
