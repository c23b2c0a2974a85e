"""What a handler may return, to say how its attempt has ended. An exception means: it failed.

They are checked when they are made, so that a mistake is an exception in the line that makes it, and not one in
the statement that ends a thousand others too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from headrace.arguments import MAX_INT, seconds
from headrace.errors import InvalidInput
from headrace.model import Duration

TEN_YEARS = 315_360_000  # seconds


class Done(msgspec.Struct, frozen=True):
    """It ended well, which is what returning nothing says too."""

    status_code: int | None = None
    """For the log."""

    def __post_init__(self) -> None:
        code = self.status_code
        if code is not None and not (type(code) is int and -MAX_INT <= code <= MAX_INT):
            raise InvalidInput(f"a status code is a whole number, not {code!r:.100}")


class Retry(msgspec.Struct, frozen=True):
    """It failed, and that counts; it is tried again after this time, or when the policy says."""

    after: Duration | None = None
    reason: str = ""
    """For the log."""

    def __post_init__(self) -> None:
        _check_text(self.reason)
        if self.after is not None and not 0 <= seconds(self.after, "after") <= TEN_YEARS:
            raise InvalidInput("what is to be tried again is so after 0 seconds to ten years")


class Discard(msgspec.Struct, frozen=True):
    """It can never succeed: it is dead-lettered at once with this reason, for a person to look at."""

    reason: str

    def __post_init__(self) -> None:
        _check_text(self.reason)
        if not self.reason.strip():
            raise InvalidInput("what is discarded is so for a reason that a person can read")


Outcome: TypeAlias = Done | Retry | Discard

# Keys by which other systems' handlers say how they ended.
_TELLING = frozenset({"status", "status_code", "statusCode", "outcome", "error", "retry"})


def mistaken(returned: object) -> str | None:
    """What a returned value looks like, if its author meant an outcome by it. None: it means nothing.

    Completing such an event would lose it: `return Retry` without parentheses asks for another attempt."""
    if isinstance(returned, type):
        return f"the class {returned.__name__} itself"
    if isinstance(returned, BaseException):
        return f"the exception {type(returned).__name__}"
    if isinstance(returned, tuple | list | set | frozenset):
        for one in returned:
            if isinstance(one, Outcome) or mistaken(one) is not None:
                kind = one.__name__ if isinstance(one, type) else type(one).__name__
                return f"a {type(returned).__name__} with {kind} in it"
    if isinstance(returned, Mapping) and (keys := _TELLING & returned.keys()):
        return f"a {type(returned).__name__} with the key {min(keys)!r}"
    return None


def _check_text(reason: object) -> None:
    if not isinstance(reason, str):
        raise InvalidInput(f"a reason is a string, not {type(reason).__name__}")
