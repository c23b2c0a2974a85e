"""Output for programs: one JSON object per line."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import msgspec
from rich.text import Text

from headrace.cli.terminal.text import Unread, clean_lines

_HIDDEN = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def json_line(record: Any) -> str:
    """A record as JSON on one line: times in UTC, durations in seconds."""
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
    """Print records for programs, one per line."""
    for record in records:
        write_line(json_line(record))


def write_line(line: str) -> None:
    """Write a line for programs, unchanged."""
    try:
        sys.stdout.write(line + "\n")
    except BrokenPipeError:
        raise Unread from None


def pretty(value: Any) -> Text:
    """JSON for people: indented and in colour."""
    from rich.highlighter import JSONHighlighter

    indented = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return JSONHighlighter()(Text(clean_lines(indented)))
