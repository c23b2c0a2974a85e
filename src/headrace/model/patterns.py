"""Types with asterisks, as the engine reads them: each asterisk stands for any characters, or none."""

from __future__ import annotations

import re
from functools import lru_cache

from headrace.errors import InvalidInput

MAX_TYPE, MAX_TAG = 200, 100  # characters

_FORBIDDEN = re.compile(r"[,\x00-\x1f\x7f-\x9f]")


def check_pattern(pattern: object) -> str:
    if not isinstance(pattern, str) or not 1 <= len(pattern) <= MAX_TYPE:
        raise InvalidInput(
            f"a type is a string of 1 to {MAX_TYPE} characters, not {pattern!r:.100}"
        )
    if _FORBIDDEN.search(pattern):
        raise InvalidInput(f"a type has no comma or control character, as {pattern!r} has")
    return pattern


def check_tag(tag: str) -> str:
    trimmed = tag.strip()
    if not 1 <= len(trimmed) <= MAX_TAG or trimmed == "*" or _FORBIDDEN.search(trimmed):
        raise InvalidInput(
            f"a tag has 1 to {MAX_TAG} characters, no comma, no control character, and is not *: {tag!r:.100}"
        )
    return trimmed


def matches(pattern: str, type: str) -> bool:
    if "*" not in pattern:
        return pattern == type
    first, *middle, last = _parts(pattern)
    if not (type.startswith(first) and type.endswith(last)):
        return False
    place, end = len(first), len(type) - len(last)
    for part in middle:  # the first place that each can have leaves the most for the next
        place = type.find(part, place, end)
        if place < 0:
            return False
        place += len(part)
    return place <= end


def overlap(one: str, other: str) -> bool:
    """Whether there may be a type that both match."""
    if "*" not in one:
        return matches(other, one)
    if "*" not in other:
        return matches(one, other)
    # A word of the longer beginning, all that stands between asterisks and the longer end is matched by both.
    (first, *_, last), (begin, *_, end) = _parts(one), _parts(other)
    return (first.startswith(begin) or begin.startswith(first)) and (
        last.endswith(end) or end.endswith(last)
    )


@lru_cache(4_096)
def _parts(pattern: str) -> tuple[str, ...]:
    """The parts before, between and after the asterisks."""
    return tuple(pattern.split("*"))
