"""Publishes the lines of a file, batch by batch, and knows how far it came."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import psycopg

from headrace.cli.terminal import times
from headrace.cli.terminal.errors import (
    CommandError,
    Interrupted,
    WrongUse,
    continued,
    is_away,
)
from headrace.cli.terminal.json import json_line
from headrace.cli.terminal.progress import Bar, stepping
from headrace.cli.terminal.text import count, remark, say
from headrace.client import EventQueue
from headrace.errors import HeadraceError, OutcomeUnknown
from headrace.model import NewEvent

BATCH = 1000  # events that are published, and committed, together
BATCH_BYTES = 4 * 1024 * 1024
CHUNK = 256 * 1024  # bytes that are read at once
LONGEST = 16 * 1024 * 1024  # bytes of a line; a payload is smaller

# An event on a line: the arguments of `publish`, as far as JSON can express them.
_OTHERWISE: dict[str, tuple[Any, Any]] = {
    "payload": (msgspec.Raw, msgspec.Raw(b"{}")),
    "backoff": (float | dict[str, Any] | None, None),
}
Line = msgspec.defstruct(
    "Line",
    [
        (field.name, *_OTHERWISE.get(field.name, (field.type, field.default)))
        for field in msgspec.structs.fields(NewEvent)
    ],
    frozen=True,
    forbid_unknown_fields=True,
)


class Lines(NamedTuple):
    """The lines to publish, and their format."""

    path: Path
    """- is standard input."""
    first: int
    type: str | None
    """None: a line is an event; otherwise a payload of this type."""
    common: Mapping[str, Any]
    """Fields of every event, unless its line sets them."""


def publish_lines(queue: EventQueue, lines: Lines, *, json: bool) -> None:
    """Publish the lines, with a bar, and print their number; an error says how far it came."""
    with _input(lines.path) as file:
        began = time.monotonic()
        with Bar("Publishing", _size(file), by_bytes=True) as bar:
            work = Work(queue, lines.first, bar)
            try:
                for batch in batches(events_of(lines_of(file.fileno()), lines)):
                    work.publish(batch)
            except KeyboardInterrupt:
                raise Interrupted(f"Interrupted: {work.so_far()}") from None
            except (HeadraceError, psycopg.Error) as error:
                raise work.ended_by(error) from error
    seconds = time.monotonic() - began
    if json:
        say(json_line({"published": work.published, "seconds": round(seconds, 3)}))
    else:
        rate = f" ({work.published / seconds:,.0f} per second)" if work.published >= BATCH else ""
        say(f"Published: {count(work.published, 'event')} in {times.length(seconds)}{rate}.")
    if work.pressure:
        remark("A queue that takes them is above its high watermark.", style="yellow")


class Numbered(NamedTuple):
    """An event, the number of its line, and the number of bytes read for it."""

    line: int
    event: Any
    size: int


class WrongLine(WrongUse):
    """An invalid line; the lines before it are published all the same."""


class Work:
    """Publishes batches of lines, and keeps how far it has come."""

    def __init__(self, queue: EventQueue, first: int, bar: Bar) -> None:
        self._queue, self._bar = queue, bar
        self._first = first
        self._last = first - 1  # all lines up to here are published
        self._trying: int | None = None  # and perhaps up to here
        self._wrong: int | None = None  # this line is refused
        self.published = 0
        self.pressure = False

    def publish(self, batch: list[Numbered]) -> None:
        """Publish a batch. Only a lost connection or a second Ctrl-C leaves the result unknown."""
        self._trying = batch[-1].line
        with stepping(self._bar):
            try:
                made = self._queue.publish_many([one.event for one in batch], enforce=True)
            except OutcomeUnknown:
                raise
            except HeadraceError as error:
                self._trying = None
                place = getattr(error, "position", None)
                self._wrong = None if place is None else batch[place].line
                raise
            self.published += len(made)
            self.pressure = made.pressure
            self._last, self._trying = batch[-1].line, None
            self._bar.advance(len(batch), sum(one.size for one in batch))

    def ended_by(self, error: HeadraceError | psycopg.Error) -> CommandError:
        if isinstance(error, psycopg.Error) and not is_away(
            error
        ):  # the error tells that nothing was published
            self._trying = None
        about = "" if self._wrong is None else f"line {self._wrong:,}: "
        return continued(error, self.so_far(), about=about)

    def so_far(self) -> str:
        if self._trying is not None:
            unknown = (
                f"whether lines {self._last + 1:,} to {self._trying:,} were published is not known"
            )
            return f"{self._done()}; {unknown}."
        return f"{self._done()}; continue with --from-line {self._last + 1}."

    def _done(self) -> str:
        if not self.published:
            return "nothing was published"
        which = f"lines {self._first:,} to {self._last:,}"
        which = f"line {self._last:,}" if self._first == self._last else which
        return f"{count(self.published, 'event')} ({which}) published"


def lines_of(file: int) -> Iterator[bytes | None]:
    """The lines of a file, or of a pipe as they arrive; None: no more for now."""
    rest = b""
    while chunk := os.read(file, CHUNK):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line + b"\n" for line in whole)
        if not select.select([file], [], [], 0)[0]:
            yield None
        if len(rest) > LONGEST:
            yield rest  # not an event: the rest of the line does not matter
            return
    if rest:
        yield rest


def events_of(raw_lines: Iterable[bytes | None], lines: Lines) -> Iterator[Numbered | None]:
    """The events of the lines; empty lines are skipped."""
    read = _reader(lines)
    number = size = 0
    for raw in raw_lines:
        if raw is None:
            yield None
            continue
        number, size = number + 1, size + len(raw)
        line = raw.strip()
        if number < lines.first or not line:
            continue
        try:
            event = read(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            what = "a valid event" if lines.type is None else "valid JSON"
            raise WrongLine(f"line {number:,} is not {what}: {error}") from None
        yield Numbered(number, event, size)
        size = 0


def _reader(lines: Lines) -> Callable[[bytes], Any]:
    """The function that reads a line: as an event, or as a payload of a type."""
    decode = msgspec.json.Decoder(Line).decode
    skim = msgspec.json.Decoder(msgspec.Raw).decode
    type, common = lines.type, lines.common
    if type is None:
        return lambda line: NewEvent(**{**common, **_given(decode(line))})
    if common:
        return lambda line: NewEvent(type, skim(line), **common)
    return lambda line: (type, skim(line))


def _given(line: msgspec.Struct) -> dict[str, Any]:
    return {
        name: value for name, value in msgspec.structs.asdict(line).items() if value is not None
    }


def batches(events: Iterable[Numbered | None]) -> Iterator[list[Numbered]]:
    """Batches of events; a batch is cut short when no more lines arrive for now. At an invalid
    line the lines before it come first, and then the error."""
    batch: list[Numbered] = []
    size = 0
    try:
        for event in events:
            if event is not None:
                batch.append(event)
                size += event.size
            if batch and (event is None or len(batch) == BATCH or size > BATCH_BYTES):
                yield batch
                batch, size = [], 0
    except WrongLine:
        if batch:
            yield batch
        raise
    if batch:
        yield batch


def _input(path: Path) -> BinaryIO:
    if str(path) == "-":
        return os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    return path.open("rb")


def _size(file: BinaryIO) -> int | None:
    """The size of a file; None for a pipe."""
    info = os.fstat(file.fileno())
    return info.st_size or None
