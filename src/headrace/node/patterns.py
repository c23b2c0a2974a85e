"""Types with asterisks, as the engine reads them: each asterisk stands for any characters, or none."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from headrace.errors import InvalidInput

MAX_TYPE, MAX_TAG = 200, 100  # characters

_CONTROL = re.compile(r"[,\x00-\x1f\x7f]")


def check_pattern(pattern: object) -> str:
    if not isinstance(pattern, str) or not 1 <= len(pattern) <= MAX_TYPE:
        raise InvalidInput(
            f"a type is a string of 1 to {MAX_TYPE} characters, not {pattern!r:.100}"
        )
    if _CONTROL.search(pattern):
        raise InvalidInput(f"a type has no comma or control character, as {pattern!r} has")
    return pattern


def check_tag(tag: str) -> str:
    trimmed = tag.strip()
    if not 1 <= len(trimmed) <= MAX_TAG or trimmed == "*" or _CONTROL.search(trimmed):
        raise InvalidInput(
            f"a tag has 1 to {MAX_TAG} characters, no comma, no control character, and is not *: {tag!r:.100}"
        )
    return trimmed


def matcher(patterns: Iterable[str]) -> Callable[[str], object]:
    """Whether a type is one of these."""
    expressions = (".*".join(map(re.escape, pattern.split("*"))) for pattern in patterns)
    return re.compile("|".join(expressions), re.DOTALL).fullmatch


def overlap(one: str, other: str) -> bool:
    """Whether there may be a type that both match."""
    if "*" not in one:
        return one == other if "*" not in other else bool(matcher([other])(one))
    if "*" not in other:
        return bool(matcher([one])(other))
    # A word of the longer beginning, all that stands between asterisks and the longer end is matched by both.
    return _agree(one.split("*")[0], other.split("*")[0], str.startswith) and _agree(
        one.split("*")[-1], other.split("*")[-1], str.endswith
    )


def _agree(one: str, other: str, goes_on_from: Callable[[str, str], bool]) -> bool:
    return goes_on_from(one, other) or goes_on_from(other, one)
