"""The file of a queue: how it is written, checked and read. What is in it is the engine's affair.

It is text, a JSON document a line: a header, parts with some events each, and an end, which says how many there were and has a
digest of all before it. So a file that was cut off or changed is known before anything of it is imported.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, TypeAlias, TypeGuard

import msgspec

from headrace import statements
from headrace.errors import Busy, InvalidInput
from headrace.statements import ExportedPart, Fenced, Statement

FIRST_PAUSE, LONGEST_PAUSE = 0.01, 1.0  # seconds
PATIENCE = 30.0  # seconds for which a move waits for transactions that may be claiming
LONGEST_LINE = 64 * 1024 * 1024
CHUNK = 1024 * 1024

SNAPSHOT = "set transaction isolation level repeatable read, read only"
"""What the transaction of an export begins with: all of its parts are of one moment."""

_HEADER = re.compile(rb'\{"format" ?: ?"headrace state"')
_PART = re.compile(rb'\{"size":(\d{1,9}),"events":')
_DAMAGED = "the state is cut off or was changed"


class Export:
    """Asks for the parts of a queue's file, one after the other, and writes its lines."""

    def __init__(self, namespace: str, queue: str, *, move: bool) -> None:
        self._named = namespace, queue
        self._move = move
        self._digest = hashlib.sha256()
        self._after: int | None = None
        self.events = 0
        self.places: dict[str, int] = {}
        self.is_over = False

    def step(self) -> Statement[Any]:
        """What to ask next."""
        if self._after is None:
            return statements.export_queue(*self._named, self._move)
        return statements.export_events(*self._named, self._after)

    def line(self, reply: str | ExportedPart) -> bytes:
        """What is written when it was answered."""
        if isinstance(reply, str):
            self._after = 0
            return self._written(reply.encode() + b"\n")  # PostgreSQL writes it on one line
        self._after = reply.last
        if reply.last is None:
            self.is_over = True
            return _end(self.events, self._digest)
        self.events += reply.size
        for place, count in reply.places.items():
            self.places[place] = self.places.get(place, 0) + count
        return self._written(b'{"size":%d,"events":%b}\n' % (reply.size, reply.events.encode()))

    def _written(self, line: bytes) -> bytes:
        self._digest.update(line)
        return line


def part_size(line: bytes) -> int:
    """How many events there are in a line of a file."""
    found = _PART.match(line)
    return 0 if found is None else int(found[1])


def _end(events: int, digest: Any) -> bytes:
    return b'{"end":{"events":%d,"sha256":"%b"}}\n' % (events, digest.hexdigest().encode())


class Fence:
    """How far a queue is from having no claims, and how long to wait before the next look: `pause`, 0 when it is there."""

    def __init__(self) -> None:
        self.known: list[str] | None = None
        self.pause = FIRST_PAUSE
        self._waited = 0.0

    def read(self, step: Fenced) -> None:
        if not step.waits_for and not step.is_busy:
            self.pause = 0.0
            return
        if self._waited >= PATIENCE:
            raise Busy(
                "the queue stays paused and was not exported: "
                + (step.held_by or "a claim in it is just being finished, and that takes long")
            )
        self._waited += self.pause
        self.known = step.waits_for
        self.pause = min(2 * self.pause, LONGEST_PAUSE)


class Contents:
    """A file that was found to be whole."""

    def __init__(self, file: IO[bytes], begin: int, header: bytes, events: int) -> None:
        self._file, self._begin, self._header = file, begin, header
        self.events = events

    @property
    def header(self) -> str:
        return self._header.decode()

    @property
    def queue(self) -> tuple[str, str]:
        """The namespace and the queue that were exported."""
        try:
            id = msgspec.json.decode(self._header)["state"]["id"]
            namespace, queue = id.split("/")
        except (
            msgspec.DecodeError,
            RecursionError,
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
        ):
            raise InvalidInput("the state does not say which queue it is of") from None
        return namespace, queue

    def parts(self, progress: Callable[[int], object] | None = None) -> Iterator[str]:
        """The events, some at a time, as JSON arrays; read while they are asked for."""
        self._file.seek(self._begin)
        done = 0
        while (found := _PART.match(line := self._file.readline(LONGEST_LINE))) is not None:
            yield line[found.end() : -2].decode()
            done += int(found[1])
            if progress is not None:
                progress(done)


File: TypeAlias = str | PathLike[str] | IO[bytes] | Iterable[bytes] | Contents
"""A path, an open file, what was read of one, or what was checked before."""


@contextmanager
def opened(file: File) -> Iterator[Contents]:
    """The contents of a file, which was read once and found to be whole. InvalidInput: it is not."""
    if isinstance(file, Contents):
        yield file
    elif isinstance(file, str | PathLike):
        with Path(file).open("rb") as named:
            yield checked(named)
    elif _is_open(file) and file.seekable():
        yield checked(file)
    else:
        with TemporaryFile() as copy:
            for chunk in _chunks(file):
                copy.write(chunk)
            copy.seek(0)
            yield checked(copy)


def _is_open(file: IO[bytes] | Iterable[bytes]) -> TypeGuard[IO[bytes]]:
    return hasattr(file, "read")


def _chunks(file: IO[bytes] | Iterable[bytes]) -> Iterator[bytes]:
    if _is_open(file):
        while chunk := file.read(CHUNK):
            yield chunk
    else:
        yield from file


def checked(file: IO[bytes]) -> Contents:
    """Read a file from where it stands to its end."""
    header = file.readline(LONGEST_LINE)
    begin = file.tell()
    if _HEADER.match(header) is None:
        raise InvalidInput("this is not the state of a queue that Headrace has exported")
    digest = hashlib.sha256(header)
    events = 0
    while (found := _PART.match(line := file.readline(LONGEST_LINE))) is not None:
        digest.update(line)
        events += int(found[1])
    if line != _end(events, digest) or file.read(1):
        raise InvalidInput(f"{_DAMAGED}: nothing of it was imported")
    return Contents(file, begin, header, events)
