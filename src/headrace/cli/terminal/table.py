"""Tables that fit the terminal, and lists of names and values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from headrace.cli.terminal.text import Cell, clean, out, width

GAP = 2  # between two columns


@dataclass(frozen=True)
class Column:
    """A column of a table. In a narrow terminal a column may be cut to `least` characters, and the
    columns with the highest `rank` are left out first."""

    name: str
    rank: int = 1
    least: int | None = None
    """None: the column is never cut, only left out."""
    right: bool = False


@dataclass(frozen=True)
class Show:
    """A column, and the function that makes its cell from a record."""

    column: Column
    cell: Callable[[Any], Cell]


class InQueue(NamedTuple):
    """A record of a queue, for tables and lines about several queues."""

    queue: str
    record: Any

    def line(self, namespace: str) -> dict[str, Any]:
        return {"namespace": namespace, "queue": self.queue} | msgspec.structs.asdict(self.record)


def print_table(shows: Sequence[Show], records: Iterable[Any]) -> None:
    """Print a row for each record, in as many columns as fit the terminal."""
    rows = [[_text(show.cell(record)) for show in shows] for record in records]
    for line in lay_out([show.column for show in shows], rows, width()):
        out().print(line, no_wrap=True, overflow="ignore", crop=False)


def lay_out(
    columns: Sequence[Column], rows: Sequence[Sequence[Text]], width: int | None
) -> list[Text]:
    """The lines of a table, none of them wider than `width`."""
    wanted = [
        max([cell_len(column.name), *(row[n].cell_len for row in rows)])
        for n, column in enumerate(columns)
    ]
    widths = fitted(columns, wanted, width)
    header = [Text(column.name, style="bold") for column in columns]
    return [_line(columns, row, widths) for row in [header, *rows]]


def fitted(columns: Sequence[Column], wanted: Sequence[int], width: int | None) -> list[int]:
    """The width of each column; 0: the column is left out."""
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
    """Print names and values, one pair per line; a value of None is left out."""
    known = [(name, cell) for name, cell in facts if cell is not None]
    column = max((len(name) for name, _ in known), default=0) + GAP
    for name, cell in known:
        line = Text(name.ljust(column), style="dim")
        out().print(line + _text(cell))
