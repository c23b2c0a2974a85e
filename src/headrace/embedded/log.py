"""server.log: how it is kept short, and what it says when a server has ended."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from headrace.embedded.locks import open_own

BYTES = 10_000_000  # of server.log; as much of what came before is in server.log.1
LINES = 10  # of server.log in the message when a server did not start
TAIL = 64 * 1024  # bytes of it in which these are looked for

_FATAL = re.compile(r"(?:FATAL|PANIC): +(.*)")


def shorten(log: Path) -> None:
    """Move a log that is too long to server.log.1; only for the holder of the gate.

    PostgreSQL has the file open for appending and cannot open another one, so the end of it is
    copied and the file is cut. A line that PostgreSQL writes between the two is lost. Its own
    logging_collector would need one more process, and bounds its files by time, not by size.
    """
    try:
        fd = os.open(log, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        size = os.fstat(fd).st_size
        if size <= BYTES:
            return
        with suppress(OSError):  # a full disk has no room for a copy, and needs this room most
            _copy(fd, max(0, size - BYTES), log.with_suffix(".log.1"))
        os.ftruncate(fd, 0)
    finally:
        os.close(fd)


def is_long(log: Path) -> bool:
    try:
        return log.stat().st_size > BYTES
    except OSError:
        return False


def tail(log: Path) -> list[str]:
    """The last lines of a log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            return file.read().decode("utf-8", "replace").splitlines()[-LINES:]
    except OSError:
        return []


def reason(log: Path) -> str:
    """Why the server ended: its last fatal message, or else the last line of all."""
    lines = tail(log)
    fatal = [found[1] for line in lines if (found := _FATAL.search(line))]
    return (fatal or lines or [f"see {log}"])[-1]


def _copy(source: int, start: int, target: Path) -> None:
    target.unlink(missing_ok=True)
    fd = open_own(target)
    try:
        while piece := os.pread(source, 1024 * 1024, start):
            start += len(piece)
            while piece:
                piece = piece[os.write(fd, piece) :]
    finally:
        os.close(fd)
