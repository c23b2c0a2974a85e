"""`headrace publish`: an event from the arguments, or one for each line of a file."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NamedTuple

import msgspec
import psycopg
import typer

from headrace.cli import times
from headrace.cli.failing import CommandError, CutOff, Interrupted, NotDone, WrongUse, complaint
from headrace.cli.help import described
from headrace.cli.options import Data, Dsn, Json, Namespace
from headrace.cli.progress import Bar, stepping
from headrace.cli.showing import clean, count, json_line, remark, say
from headrace.cli.source import opened
from headrace.client import EventQueue
from headrace.errors import HeadraceError
from headrace.model import NewEvent

BATCH = 1000  # events that are published, and committed, together
BATCH_BYTES = 4 * 1024 * 1024


def register(app: typer.Typer) -> None:
    described(
        app,
        panel="Events",
        examples="""
        headrace publish order.created '{"order": 42}' --tag priority-high
        headrace publish report.requested --delay 10m --key customer-7
        curl -s https://example.com/order.json | headrace publish order.imported -
        headrace publish order.created --lines orders.jsonl
        zcat events.jsonl.gz | headrace publish --lines -
        """,
    )(publish)


def publish(
    type: Annotated[
        str | None,
        typer.Argument(
            metavar="TYPE", help="The event's type, as in order.created.", show_default=False
        ),
    ] = None,
    payload: Annotated[
        str | None,
        typer.Argument(
            metavar="JSON", help="Its payload; - reads it from standard input.", show_default=False
        ),
    ] = None,
    lines: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Publish every line of this file (-: of standard input). With a TYPE a line is a payload of it, else an "
            "event: an object with type, payload, tags, key, idempotency_key …",
            show_default=False,
            allow_dash=True,
        ),
    ] = None,
    from_line: Annotated[
        int, typer.Option(metavar="NUMBER", min=1, help="With --lines: begin with this line.")
    ] = 1,
    tags: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="TAG", help="A tag. Repeat for several.", show_default=False),
    ] = None,
    delay: Annotated[
        timedelta | None,
        typer.Option(
            parser=times.duration,
            metavar="TIME",
            help="Not before this has passed: 90s, 10m, 1d.",
            show_default=False,
        ),
    ] = None,
    at: Annotated[
        datetime | None,
        typer.Option(
            parser=times.instant,
            metavar="TIME",
            help="Not before this time: 2026-03-01T12:00Z.",
            show_default=False,
        ),
    ] = None,
    priority: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            help="0 is the most urgent, 5 the usual, 9 the least.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Ordering key: events of one key are handed out one at a time, in order.",
            show_default=False,
        ),
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Published again with this key, it is the same event.",
            show_default=False,
        ),
    ] = None,
    max_retries: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER", min=0, help="Failures until it is a dead letter.", show_default=False
        ),
    ] = None,
    title: Annotated[
        str | None, typer.Option(metavar="TEXT", help="For people.", show_default=False)
    ] = None,
    description: Annotated[
        str | None, typer.Option(metavar="TEXT", help="For people.", show_default=False)
    ] = None,
    version: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Of the payload's form.", show_default=False)
    ] = None,
    correlation_id: Annotated[
        str | None, typer.Option(metavar="ID", help="What it belongs to.", show_default=False)
    ] = None,
    causation_id: Annotated[
        str | None, typer.Option(metavar="ID", help="What caused it.", show_default=False)
    ] = None,
    trace_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Of its trace.", show_default=False)
    ] = None,
    producer: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who publishes it.", show_default=False)
    ] = None,
    json: Json = False,
    namespace: Namespace = "default",
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Publish an event, or one for each line of a file.

    Lines are published in batches of a thousand, each committed on its own. If a line is wrong, or it is
    interrupted, it is said how far it came, and --from-line goes on from there. Lines with an idempotency_key may
    be published again without harm."""
    said: dict[str, Any] = {
        "tags": tags,
        "delay": delay,
        "at": at,
        "priority": priority,
        "key": key,
        "idempotency_key": idempotency_key,
        "max_retries": max_retries,
        "title": title,
        "description": description,
        "version": version,
        "correlation_id": correlation_id,
        "causation_id": causation_id,
        "trace_id": trace_id,
        "producer": producer,
    }
    common = {name: value for name, value in said.items() if value is not None}
    if lines is not None:
        if payload is not None:
            raise WrongUse("with --lines the payloads are in the lines: leave the JSON out")
        if idempotency_key is not None:
            raise WrongUse(
                "an idempotency key is for one event: with --lines every line has its own"
            )
        _publish_lines(lines, from_line, type, common, json=json, where=(dsn, data, namespace))
        return
    if type is None:
        raise WrongUse("publish needs a TYPE, or --lines with a file of events")
    event = NewEvent(type, _payload(payload), **common)
    with opened(dsn, data, namespace) as queue:
        [id] = made = queue.publish_many([event])
    if json:
        say(json_line({"id": id, "type": type, "namespace": namespace, "pressure": made.pressure}))
        return
    say(f"Published: event {id}")
    if made.pressure:
        remark("A queue that takes it has reached its high watermark.", style="yellow")


def _payload(text: str | None) -> Any:
    if text is None:
        return None
    given = sys.stdin.buffer.read() if text == "-" else text.encode("utf-8", "surrogateescape")
    try:
        msgspec.json.decode(given)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        what = "what standard input has" if text == "-" else clean(f"{text:.60}")
        raise WrongUse(
            f"{what} is no JSON ({error}); a text is quoted, as in '\"hello\"'"
        ) from None
    return msgspec.Raw(given.strip())


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An event on a line: the arguments of `publish`."""

    type: str = "event"
    payload: msgspec.Raw = msgspec.Raw(b"{}")
    tags: list[str] | None = None
    delay: float | None = None
    at: datetime | None = None
    priority: int | None = None
    key: str | None = None
    idempotency_key: str | None = None
    max_retries: int | None = None
    backoff: float | dict[str, Any] | None = None
    title: str | None = None
    description: str | None = None
    version: str | None = None
    source: dict[str, str] | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    trace_id: str | None = None
    producer: str | None = None


class Numbered(NamedTuple):
    """An event, the number of its line, and how many bytes were read with it."""

    line: int
    event: Any
    size: int


class WrongLine(WrongUse):
    """A line that is no event; those before it are to be published all the same."""


def _publish_lines(
    path: Path, first: int, type: str | None, common: Mapping[str, Any], *, json: bool, where: Any
) -> None:
    with _input(path) as file, opened(*where) as queue:
        work = Work(queue, first)
        began = time.monotonic()
        with Bar("Publishing", _size(file), unit="events", by_bytes=True) as bar:
            try:
                for batch in batches(events_of(file, first, type, common)):
                    work.publish(batch)
                    bar.advance(len(batch), sum(one.size for one in batch))
            except KeyboardInterrupt:
                raise Interrupted(f"Interrupted: {work.so_far()}") from None
            except (HeadraceError, psycopg.Error) as error:
                raise work.ended_by(error) from error
    seconds = time.monotonic() - began
    if json:
        say(
            json_line(
                {"published": work.published, "seconds": round(seconds, 3), "namespace": where[2]}
            )
        )
    else:
        rate = f" ({work.published / seconds:,.0f} a second)" if work.published >= BATCH else ""
        say(f"Published: {count(work.published, 'event')} in {times.length(seconds)}{rate}.")
    if work.pressure:
        remark("A queue that takes them has reached its high watermark.", style="yellow")


class Work:
    """How far the lines have come."""

    def __init__(self, queue: EventQueue, first: int) -> None:
        self._queue = queue
        self._first = first
        self._last = first - 1  # all lines up to here are published
        self._trying: int | None = None  # and perhaps up to here
        self._wrong: int | None = None  # what this line holds is refused
        self.published = 0
        self.pressure = False

    def publish(self, batch: list[Numbered]) -> None:
        """Whether it is published is known in the end, unless the database goes away, or Ctrl-C is pressed twice."""
        self._trying = batch[-1].line
        with stepping():
            try:
                made = self._queue.publish_many([one.event for one in batch], enforce=True)
            except HeadraceError as error:
                self._trying = None
                place = getattr(error, "position", None)
                self._wrong = None if place is None else batch[place].line
                raise
            self.published += len(made)
            self.pressure = made.pressure
            self._last, self._trying = batch[-1].line, None

    def ended_by(self, error: HeadraceError | psycopg.Error) -> CommandError:
        why = complaint(error)
        assert why is not None
        kind = {1: NotDone, 2: WrongUse, 3: CutOff}[why.code]
        named = "" if self._wrong is None else f"line {self._wrong:,}: "
        return kind(f"{named}{why.sentence.rstrip('.')}. {self.so_far()}")

    def so_far(self) -> str:
        if self._trying is not None:
            unknown = (
                f"whether lines {self._last + 1:,} to {self._trying:,} were published is not known"
            )
            return f"{self._done()}, and {unknown}."
        return f"{self._done()}; go on with --from-line {self._last + 1}."

    def _done(self) -> str:
        if not self.published:
            return "nothing was published"
        return (
            f"{count(self.published, 'event')} (lines {self._first:,} to {self._last:,}) published"
        )


def events_of(
    file: BinaryIO, first: int, type: str | None, common: Mapping[str, Any]
) -> Iterator[Numbered]:
    """The events of a file's lines; an empty line is none."""
    decode = msgspec.json.Decoder(Line).decode
    skim = msgspec.json.Decoder(msgspec.Raw).decode
    for number, raw in enumerate(file, 1):
        line = raw.strip()
        if number < first or not line:
            continue
        try:
            if type is None:
                event: Any = NewEvent(**{**common, **_given(decode(line))})
            elif common:
                event = NewEvent(type, skim(line), **common)
            else:
                event = (type, skim(line))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise WrongLine(
                f"line {number:,} is {'no event' if type is None else 'no JSON'}: {error}"
            ) from None
        yield Numbered(number, event, len(raw))


def _given(line: Line) -> dict[str, Any]:
    return {
        name: value for name, value in msgspec.structs.asdict(line).items() if value is not None
    }


def batches(events: Iterable[Numbered]) -> Iterator[list[Numbered]]:
    """Some at a time; those before a line that is wrong come first, and then the error."""
    batch: list[Numbered] = []
    size = 0
    try:
        for event in events:
            batch.append(event)
            size += event.size
            if len(batch) == BATCH or size > BATCH_BYTES:
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
    """Of a file; None for what has no end yet."""
    info = os.fstat(file.fileno())
    return info.st_size or None
