"""A terminal in which a command runs as a user runs it: it is seen what stands on the screen, and keys are pressed."""

import errno
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from types import TracebackType
from typing import IO, Self

import pyte

from tests.cli.test_commands import environment

PATIENCE = 60.0
# The terminal becomes the process's own, so that Ctrl-C is a signal to it.
PROGRAM = (
    "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "from headrace.cli import main; main()"
)


class Terminal:
    """`headrace` with these arguments, in a terminal of this size."""

    def __init__(
        self,
        *arguments: str,
        columns: int = 100,
        lines: int = 40,
        stdout: IO[bytes] | None = None,
        **extra: str,
    ) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        kept = {
            name: value
            for name, value in environment().items()
            if name not in ("NO_COLOR", "COLUMNS", "LINES", "FORCE_COLOR")
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments],
            stdin=slave,
            stdout=slave if stdout is None else stdout,
            stderr=slave,
            env={**kept, "TERM": "xterm-256color", **extra},
            start_new_session=True,
        )
        os.close(slave)
        self._screen = pyte.HistoryScreen(columns, lines, history=1000)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.close()

    def close(self) -> None:
        """As somebody closes the window; the process gets SIGHUP."""
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    @property
    def lines(self) -> list[str]:
        """What is to be seen, without the space at the ends."""
        return [line.rstrip() for line in self._screen.display if line.strip()]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def interrupt(self) -> None:
        self.press("\x03")

    def wait_for(self, seen: str | Callable[[str], bool]) -> None:
        """Until it is to be seen."""
        holds = seen if callable(seen) else (lambda text: seen in text)
        deadline = time.monotonic() + PATIENCE
        while not holds(self.text):
            assert time.monotonic() < deadline, f"{seen} did not appear:\n{self.text}"
            assert self._read(0.1), f"it ended before {seen} appeared:\n{self.text}"

    def end(self) -> int:
        """The exit code, once all was read. There is never a traceback."""
        deadline = time.monotonic() + PATIENCE
        while self._read(0.1):
            assert time.monotonic() < deadline, f"it does not end:\n{self.text}"
        code = self.process.wait(PATIENCE)
        assert b"Traceback" not in self.raw, self.text
        return code

    def _read(self, seconds: float) -> bool:
        """Read what there is; False: nothing will come any more."""
        ready, _, _ = select.select([self._master], [], [], seconds)
        if not ready:
            return True
        try:
            data = os.read(self._master, 65536)
        except OSError as error:  # which is how Linux says that nobody has it open
            if error.errno != errno.EIO:
                raise
            return False
        self.raw += data
        self._stream.feed(data)
        return bool(data)
