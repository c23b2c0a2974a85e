"""The file of a queue: how it is written, checked and read. The engine decides its contents.

It is text, a JSON document a line: a header, parts with some events each, and an end, which says
how many there were and has a digest of all before it. So a file that was cut off or changed is
known before anything of it is imported.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from os import PathLike
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple, TypeAlias, TypeGuard
from uuid import uuid4

import msgspec

from headrace.engine.caller import Caller
from headrace.engine.namespaces import create_namespace
from headrace.engine.queues import pause, queue
from headrace.engine.statement import Statement, Steps, Together, Turns, ask, done
from headrace.errors import Busy, InvalidInput
from headrace.model import Imported, told
from headrace.model.pauses import NO_JITTER, Pauses

FIRST_PAUSE, LONGEST_PAUSE = 0.01, 1.0  # seconds
PATIENCE = 30.0  # seconds for which a move waits for transactions that may be claiming
LONGEST_LINE = 64 * 1024 * 1024
CHUNK = 1024 * 1024
SNAPSHOT = "set transaction isolation level repeatable read, read only"
"""Begins the transaction of an export, so that all of its parts are of one moment."""
_HEADER = re.compile(rb'\{"format" ?: ?"headrace state"')
_PART = re.compile(rb'\{"size":(\d{1,9}),"events":')
_DAMAGED = "the state is cut off or was changed"


class ExportedPart(NamedTuple):
    """Some events of a queue's file, as JSON."""

    events: str
    size: int
    last: int | None
    """The id of the last of them; None: there are none."""
    places: dict[str, int]


class Fenced(NamedTuple):
    """The result of a step of `fence`, and the reason why it was not the last."""

    fenced: int
    is_busy: bool
    waits_for: list[str]
    held_by: str | None


def fence(namespace: str, queue: str, known: list[str] | None, actor: str) -> Statement[Fenced]:
    return Statement(
        "select fenced, is_busy, waits_for, held_by "
        "from headrace.fence(%s, %s, %s::pg_catalog.text[], %s)",
        (namespace, queue, known, actor),
        lambda rows: Fenced(*rows[0]),
        has_its_own_time=True,
    )


def export_queue(namespace: str, queue: str, move: bool) -> Statement[str]:
    return Statement(
        "select headrace.export_queue(%s, %s, %s::boolean)::pg_catalog.text",
        (namespace, queue, move),
        lambda rows: rows[0][0],
        has_its_own_time=True,
    )


def export_events(namespace: str, queue: str, after: int) -> Statement[ExportedPart]:
    return Statement(
        "select events::pg_catalog.text, size, last, places::pg_catalog.text "
        "from headrace.export_events(%s, %s, %s::bigint)",
        (namespace, queue, after),
        lambda rows: _read_part(*rows[0]),
        has_its_own_time=True,
    )


def _read_part(events: str, size: int, last: int | None, places: str) -> ExportedPart:
    return ExportedPart(events, size, last, told(places))


def begin_import(id: str, namespace: str, queue: str, header: str, actor: str) -> Statement[None]:
    return done(
        "headrace.import_state(%s, %s, %s::pg_catalog.uuid, header => %s::pg_catalog.json, actor => %s)",
        *(namespace, queue, id, header, actor),
    )


def import_events(id: str, namespace: str, queue: str, events: str) -> Statement[None]:
    return done(
        "headrace.import_state(%s, %s, %s::pg_catalog.uuid, events => %s::pg_catalog.json)",
        *(namespace, queue, id, events),
    )


def end_import(id: str, namespace: str, queue: str, total: int) -> Statement[Imported]:
    return Statement(
        "select is_new, kept_ids, stored, ready, delayed, dead, already "
        "from headrace.import_state(%s, %s, %s::pg_catalog.uuid, total => %s::bigint)",
        (namespace, queue, id, total),
        lambda rows: Imported(*rows[0]),
    )


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
        """The next statement."""
        if self._after is None:
            return export_queue(*self._named, self._move)
        return export_events(*self._named, self._after)

    def line(self, reply: str | ExportedPart) -> bytes:
        """The line to write for its reply."""
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
    """How far a queue is from having no claims, and how long to wait before the next look: `pause`,
    0 when it has none."""

    def __init__(self) -> None:
        self.known: list[str] | None = None
        self._pauses = Pauses(FIRST_PAUSE, LONGEST_PAUSE, jitter=NO_JITTER)
        self.pause = self._pauses.next()
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
        self.pause = self._pauses.next()


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
    """The contents of a file, which was read once and found to be whole. InvalidInput: it is
    not."""
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


class TransferVerbs(Caller):
    """Verbs that move a queue as a file."""

    def export_state(self, *, move: bool = False, actor: str | None = None) -> Export:
        """This queue as a file: its settings, and all its events with their payloads, wherever they
        are, with the dead letters. Returns the lines of the file, as they are read; they show one
        moment, and `import_state` makes a queue of them. Nothing is changed, unless the queue is to
        `move`: then it must be paused or draining, is paused, and a worker that has claimed an
        event of it can no longer finish that event. QueueNotPaused: the queue is active."""
        return Export(*self.names, move=move)

    def fence(self, actor: str | None = None) -> Turns[None]:
        """Pause this queue and end its claims, before it is moved."""
        if not self.is_alone(None):
            raise InvalidInput("a queue is moved in transactions of its own, not in yours")
        so_far = Fence()
        while so_far.pause:
            yield self._fence(so_far, actor or self.worker)
            if so_far.pause:
                yield so_far.pause

    def import_state(
        self,
        file: File,
        *,
        progress: Callable[[int], object] | None = None,
        actor: str | None = None,
    ) -> Steps[Imported]:
        """Import the lines of `export_state`, of this database or another, into this queue only;
        the queue and its namespace are made if they do not exist. All of it is imported or nothing;
        what this queue had before stays as it is. `file` is a path, an open file, or its lines.
        `progress` is called with how many events were sent so far. InvalidInput: the file is cut
        off or was changed."""
        who = actor or self.worker
        named = str(uuid4()), *self.names
        with opened(file) as contents:
            replies = yield Together(
                chain(
                    [
                        create_namespace(self.namespace, {}, who),
                        begin_import(*named, contents.header, who),
                    ],
                    (import_events(*named, part) for part in contents.parts(progress)),
                    [end_import(*named, contents.events)],
                )
            )
        imported: Imported = replies[-1]
        return imported

    def _fence(self, so_far: Fence, actor: str) -> Steps[None]:
        """The next step of it. A queue that is draining is paused, as it would be in the end."""
        if so_far.known is None:
            found = yield from ask(queue(*self.names))
            if found.state == "draining":
                yield from ask(pause(*self.names, actor))
        so_far.read((yield from ask(fence(*self.names, so_far.known, actor))))
