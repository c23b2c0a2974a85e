"""`headrace replay`: the past events of a queue, printed or published again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.text import Text

from headrace.cli.source import Where
from headrace.cli.terminal import options, times
from headrace.cli.terminal.command import command
from headrace.cli.terminal.errors import Interrupted, WrongUse, continued, is_away
from headrace.cli.terminal.json import json_line, write_line
from headrace.cli.terminal.options import Json
from headrace.cli.terminal.progress import Bar, stepping
from headrace.cli.terminal.text import clean, count, out, remark, say
from headrace.errors import HeadraceError, NotStored
from headrace.model import Event, NewEvent

if TYPE_CHECKING:  # --help and completion do without it
    from headrace.client import EventQueue

STEP = 10  # events between two updates of the bar
BATCH = 100  # events that are published, and committed, together


def _checkpoint(text: str) -> int | str:
    """An event's id, or the places of several shards, which their clients read."""
    if text.isascii() and text.isdigit():
        return int(text)
    if "~" in text:
        return text
    raise typer.BadParameter(f"{text!r} is no checkpoint, and no id of an event")


FromCheckpoint = Annotated[
    Any,
    typer.Option(
        metavar="ID",
        parser=_checkpoint,
        help="Only events after this checkpoint or event id.",
        show_default=False,
    ),
]
Lines = Annotated[
    bool,
    typer.Option("--lines", help="Print lines that `headrace publish --lines` can publish again."),
]
To = Annotated[
    str | None,
    typer.Option(
        metavar="NAMESPACE",
        help="Publish them again into this namespace instead of printing them.",
        show_default=False,
    ),
]
Rate = Annotated[
    float | None,
    typer.Option(
        metavar="NUMBER",
        min=0.001,
        help="With --to: rate limit (events per second); default: none.",
        show_default=False,
    ),
]


@command(
    examples="""
    headrace replay --since 1d --type 'order.*'
    headrace replay --queue billing --from-checkpoint 4711 --json > events.jsonl
    headrace replay --since 2h --type 'order.*' --to staging --rate 50
    headrace replay --since 2h --lines | headrace publish --lines - --dsn postgresql://elsewhere
    """,
)
def replay(
    from_checkpoint: FromCheckpoint = None,
    since: options.Since = None,
    types: options.Types = None,
    lines: Lines = False,
    to: To = None,
    rate: Rate = None,
    json: Json = False,
    *,
    where: Where,
) -> None:
    """Read the past events of a queue again, in order, whatever their status.

    It prints them, or with --to publishes them again: as new events, without their delays, in
    batches of a hundred, each committed on its own. It ends at the last event that existed when
    it began, and skips none: it waits for open transactions that may still commit an earlier
    one."""
    chosen = {"from_checkpoint": from_checkpoint, "since": since, "types": types}
    if json and lines:
        raise WrongUse("give --json or --lines, not both")
    if to is None and rate is not None:
        raise WrongUse("--rate needs --to: it limits how fast events are published again")
    if to is None:
        _print_all(where, chosen, json=json, lines=lines)
    elif json or lines:
        raise WrongUse("--to publishes events and prints none: leave --json and --lines out")
    else:
        _publish_again(where, chosen, to, rate)


def _publish_again(where: Where, chosen: dict[str, Any], to: str, rate: float | None) -> None:
    from headrace.client import beside

    with where.opened() as source:
        reached = Reached(source, chosen["from_checkpoint"])
        again = Again(beside(source, to, "main"), rate, reached)
        again.publish_all(source.replay(**chosen))
    say(f"Published again: {count(again.done, 'event')}.")


def _print_all(where: Where, chosen: dict[str, Any], *, json: bool, lines: bool) -> None:
    done = 0
    with where.opened() as source:
        reached = Reached(source, chosen["from_checkpoint"])
        try:
            with Bar("Reading", None, shown=not out().is_terminal) as bar:
                for event in source.replay(**chosen):
                    with stepping(bar):  # a line is written whole
                        _print(event, json=json, lines=lines)
                        reached.to(event.id)
                        done += 1
                    if done % STEP == 0:
                        bar.at(done)
        except KeyboardInterrupt:
            after = f"; continue with --from-checkpoint {reached}" if reached else ""
            raise Interrupted(f"Interrupted: {count(done, 'event')} read{after}.") from None
    remark(f"{count(done, 'event')}.")


def _print(event: Event, *, json: bool, lines: bool) -> None:
    if lines:
        write_line(json_line(arguments(event)))
        return
    if json:
        write_line(json_line(event))
        return
    line = Text(f"{times.exact(event.created_at)} ", style="dim")
    line.append(f"{event.id:>8} ", style="not dim")
    line.append(clean(event.type), style="not dim bold")
    line.append(f"  {clean(msgspec.json.encode(event.payload).decode())}")
    if out().is_terminal:
        line.truncate(out().width, overflow="ellipsis")
    out().print(line, no_wrap=True, crop=False)


def arguments(event: Event) -> dict[str, Any]:
    """The arguments it was published with, but for its delay, and the keys by which it would be
    taken for the one it repeats."""
    values = {name: getattr(event, name, None) for name in NewEvent.__struct_fields__}
    values |= {"unique": None, "debounce": None}
    if event.title == event.type:
        del values["title"]
    return {name: value for name, value in values.items() if value not in (None, ())}


class Reached:
    """How far events were read: the last id, or the last of each shard."""

    def __init__(self, source: EventQueue, begin: int | str | None) -> None:
        self._source, self._begin = source, begin
        self._last: dict[int, str] = {}

    def to(self, id: int) -> None:
        from headrace.client import ShardedQueue

        if isinstance(self._source, ShardedQueue):
            self._last[self._source.holder_of(id)] = str(id)
        else:
            self._begin = id

    def __bool__(self) -> bool:
        return bool(self._last) or self._begin is not None

    def __str__(self) -> str:
        from headrace.engine.shards import Cursor

        if not self._last:
            return str(self._begin)
        begun = Cursor.read(self._begin) if isinstance(self._begin, str) else None
        return str(Cursor({**(begun.places if begun else {}), **self._last}))


class Again:
    """Publishes events again, at a rate, and keeps how far it has come."""

    def __init__(self, target: EventQueue, rate: float | None, last: Reached) -> None:
        self._target, self._rate = target, rate
        self._most = BATCH if rate is None else max(1, min(BATCH, int(rate / 2)))
        self._last = last  # all up to here are published
        self._trying: int | None = None  # and perhaps up to here
        self.done = 0

    def publish_all(self, events: Iterator[Event]) -> None:
        import psycopg

        began, batch = time.monotonic(), list[Event]()
        try:
            with Bar("Publishing again", None) as bar:
                for event in events:
                    batch.append(event)
                    if len(batch) == self._most:
                        self._publish(batch, bar)
                        batch = []
                        if self._rate is not None:
                            time.sleep(max(0.0, began + self.done / self._rate - time.monotonic()))
                if batch:
                    self._publish(batch, bar)
        except KeyboardInterrupt:
            raise Interrupted(f"Interrupted: {self._so_far()}") from None
        except (HeadraceError, psycopg.Error) as error:
            away = isinstance(error, psycopg.Error) and is_away(error)
            if isinstance(error, NotStored) or not away:
                self._trying = None  # the error tells that the batch was not published
            raise continued(error, self._so_far()) from error

    def _publish(self, batch: list[Event], bar: Bar) -> None:
        self._trying = batch[-1].id
        with stepping(bar):
            self._target.publish_many([arguments(event) for event in batch], enforce=True)
            for event in batch:
                self._last.to(event.id)
            self._trying = None
            self.done += len(batch)
            bar.at(self.done)

    def _so_far(self) -> str:
        done = f"{count(self.done, 'event')} published again"
        if self._trying is not None:
            return f"{done}; whether those up to {self._trying} were published is not known."
        after = f"; continue with --from-checkpoint {self._last}" if self._last else ""
        return f"{done}{after}."
