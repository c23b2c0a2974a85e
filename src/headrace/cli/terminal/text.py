"""Text on the terminal: the two streams, and how values are worded.

Text of an event or its publisher is printed as text: a control character is made visible and not
sent to the terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from rich.console import Console
from rich.text import Text

Cell = str | Text

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
    "SNOOZED": "yellow",
    "REDRIVEN": "yellow",
    "RERUN": "yellow",
    "RESET": "yellow",
    "CANCELLED": "dim",
    "SUPERSEDED": "dim",
    "active": "green",
    "alive": "green",
    "paused": "yellow",
    "draining": "yellow",
    "gone": "red",
    "stopped": "dim",
}

# Control characters, and characters that turn the direction of a line: a terminal would act on
# them.
_ACTING = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Unread(BrokenPipeError):
    """The reader closed the pipe, as `| head` does. This error has no errno: for one that has, rich
    and click exit with code 1."""


class _Stream(Console):
    def on_broken_pipe(self) -> None:
        raise Unread


@cache
def out() -> Console:
    """Standard output: as wide as the terminal, and without a width in a file or a pipe."""
    return _Stream(highlight=False, emoji=False, markup=False, soft_wrap=True)


@cache
def err() -> Console:
    """Standard error: for everything that is not the answer."""
    return _Stream(stderr=True, highlight=False, emoji=False, markup=False, soft_wrap=True)


def width() -> int | None:
    """The width of the terminal; None without a terminal, where nothing has to be cut."""
    console = out()
    return console.width if console.is_terminal else None


def say(words: Cell) -> None:
    """Print a line of the answer."""
    out().print(words)


def say_wrapped(words: Text, indent: int) -> None:
    """Print a paragraph of the answer, whose lines after the first are indented."""
    console = out()
    if not console.is_terminal:
        console.print(words)
        return
    first, *rest = words.wrap(console, max(console.width - indent, 20))
    for line in [first, *(Text(" " * indent) + line for line in rest)]:
        console.print(line)


def remark(words: str, style: str = "dim") -> None:
    """Print a line beside the answer, on standard error."""
    err().print(words, style=style, soft_wrap=not err().is_terminal)


def clean(text: object) -> str:
    """Foreign text on one line, with everything visible that a terminal would act on."""
    return _ACTING.sub(lambda found: repr(found[0])[1:-1], str(text))


def clean_lines(text: object) -> str:
    """Foreign text with its line ends."""
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


def last_line(text: str | None) -> str:
    """The last line of an error: in a traceback that is its message."""
    return (text or "").strip().rpartition("\n")[2] or ("–" if not text else "")
