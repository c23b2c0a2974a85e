"""What commands show: tables that fit the terminal for people, JSON lines for programs.

Whatever an event or its publisher says is shown as text: a control character is shown and not sent to the terminal.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

Cell = str | Text

GAP = 2  # between two columns
STYLES = {
    "COMPLETED": "green",
    "COMPLETED_WITH_ERRORS": "yellow",
    "PROCESSING": "cyan",
    "PICKED": "cyan",
    "STARTED": "cyan",
    "FAILED": "red",
    "DEAD_LETTERED": "red",
    "ABANDONED": "red",
    "RELEASED": "yellow",
    "REDRIVEN": "yellow",
    "RESET": "yellow",
    "CANCELLED": "dim",
    "active": "green",
    "alive": "green",
    "paused": "yellow",
    "draining": "yellow",
    "gone": "red",
    "stopped": "dim",
}

# Control characters, and those that turn the direction of a line: what a terminal would act on.
_ACTING = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_HIDDEN = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Unread(BrokenPipeError):
    """Nobody reads on, as behind `| head`. It has no errno: rich and click make an exit code 1 of one that has."""


class _Told(Console):
    def on_broken_pipe(self) -> None:
        raise Unread


@cache
def out() -> Console:
    """Standard output: as wide as the terminal, without a width where it goes to a file or a program."""
    return _Told(highlight=False, emoji=False, markup=False, soft_wrap=True)


@cache
def err() -> Console:
    """Standard error: for what is not the answer."""
    return _Told(stderr=True, highlight=False, emoji=False, markup=False, soft_wrap=True)


def say(words: Cell) -> None:
    """A line of the answer."""
    out().print(words)


def say_wrapped(words: Text, indent: int) -> None:
    """A paragraph of the answer, whose lines after the first are indented."""
    console = out()
    if not console.is_terminal:
        console.print(words)
        return
    first, *rest = words.wrap(console, max(console.width - indent, 20))
    for line in [first, *(Text(" " * indent) + line for line in rest)]:
        console.print(line)


def remark(words: str, style: str = "dim") -> None:
    """A line beside the answer."""
    err().print(words, style=style, soft_wrap=not err().is_terminal)


def clean(text: object) -> str:
    """Anybody's text on one line, with what a terminal would act on made visible."""
    return _ACTING.sub(lambda found: repr(found[0])[1:-1], str(text))


def clean_lines(text: object) -> str:
    """Anybody's text with its line ends."""
    return "\n".join(clean(line.expandtabs(4)) for line in str(text).splitlines())


def state(word: str | None) -> Text:
    """A status, an action or a state, in its colour."""
    return Text(clean(word or "–"), style=STYLES.get(word or "", ""))


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:,}"


def count(value: int, noun: str, plural: str | None = None) -> str:
    return f"{value:,} {noun if value == 1 else plural or noun + 's'}"


def listed(words: Iterable[object] | None, nothing: str = "–") -> str:
    return clean(", ".join(map(str, words or ()))) or nothing


def json_line(record: Any) -> str:
    """A record as JSON on one line: times in UTC, lengths of time in seconds."""
    plain = msgspec.to_builtins(record, builtin_types=(timedelta,))
    text = msgspec.json.encode(_in_seconds(plain)).decode()
    return text if text.isascii() else _HIDDEN.sub(lambda one: f"\\u{ord(one[0]):04x}", text)


def _in_seconds(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _in_seconds(one) for name, one in value.items()}
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value


def print_json(records: Iterable[Any]) -> None:
    """Records for programs, one a line."""
    for record in records:
        write_line(json_line(record))


def write_line(line: str) -> None:
    """A line for programs, as it is."""
    try:
        sys.stdout.write(line + "\n")
    except BrokenPipeError:
        raise Unread from None


def pretty(value: Any) -> Text:
    """JSON for people."""
    from rich.highlighter import JSONHighlighter

    indented = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return JSONHighlighter()(Text(clean_lines(indented)))


@dataclass(frozen=True)
class Column:
    """A column of a table. Where there is no room, `least` (characters) says how far it may be cut, and those of the
    highest `rank` are left out first."""

    name: str
    rank: int = 1
    least: int | None = None
    """None: all of it is shown, or nothing."""
    right: bool = False


@dataclass(frozen=True)
class Show:
    """How a record becomes a row: a column, and what stands in it."""

    column: Column
    cell: Callable[[Any], Cell]


def print_table(shows: Sequence[Show], records: Iterable[Any]) -> None:
    """A row for each record, in as many columns as the terminal has room for."""
    rows = [[_text(show.cell(record)) for show in shows] for record in records]
    for line in lay_out([show.column for show in shows], rows, width()):
        out().print(line, no_wrap=True, overflow="ignore", crop=False)


def width() -> int | None:
    """Of the terminal; None: there is none, and nothing has to be cut."""
    console = out()
    return console.width if console.is_terminal else None


def lay_out(
    columns: Sequence[Column], rows: Sequence[Sequence[Text]], width: int | None
) -> list[Text]:
    """The lines of a table that are no wider than that."""
    wanted = [
        max([cell_len(column.name), *(row[n].cell_len for row in rows)])
        for n, column in enumerate(columns)
    ]
    widths = fitted(columns, wanted, width)
    header = [Text(column.name, style="bold") for column in columns]
    return [_line(columns, row, widths) for row in [header, *rows]]


def fitted(columns: Sequence[Column], wanted: Sequence[int], width: int | None) -> list[int]:
    """How wide each column becomes; 0: it is left out."""
    if width is None:
        return list(wanted)
    kept = set(range(len(columns)))
    least = [
        wanted[n] if column.least is None else min(wanted[n], column.least)
        for n, column in enumerate(columns)
    ]
    while len(kept) > 1 and sum(least[n] + GAP for n in kept) - GAP > width:
        kept.remove(max(kept, key=lambda n: (columns[n].rank, n)))
    spare = width - (sum(least[n] + GAP for n in kept) - GAP)
    widths = [least[n] if n in kept else 0 for n in range(len(columns))]
    for n in sorted(kept, key=lambda n: (columns[n].rank, n)):
        more = max(0, min(wanted[n] - widths[n], spare))
        widths[n] += more
        spare -= more
    return [min(one, width) for one in widths]


def _line(columns: Sequence[Column], cells: Sequence[Text], widths: Sequence[int]) -> Text:
    line = Text()
    for column, cell, wide in zip(columns, cells, widths, strict=True):
        if wide:
            line.append_text(_cut(cell, wide, right=column.right)).append(" " * GAP)
    line.rstrip()
    return line


def _cut(cell: Text, wide: int, *, right: bool) -> Text:
    spare = wide - cell.cell_len
    if spare >= 0:
        return Text(" " * spare) + cell if right else cell + Text(" " * spare)
    return Text(set_cell_size(cell.plain, wide - 1) + "…", style=cell.style)


def _text(cell: Cell) -> Text:
    return cell if isinstance(cell, Text) else Text(clean(cell))


def print_facts(facts: Iterable[tuple[str, Cell | None]]) -> None:
    """Names and what they stand for, a line each; what is None is left out."""
    known = [(name, cell) for name, cell in facts if cell is not None]
    column = max((len(name) for name, _ in known), default=0) + GAP
    for name, cell in known:
        line = Text(name.ljust(column), style="dim")
        out().print(line + _text(cell))
