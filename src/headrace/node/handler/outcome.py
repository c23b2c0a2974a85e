"""The outcomes that a handler may return, to say how its attempt has ended. An exception means: it
failed.

Outcomes are checked when they are made. So a mistake is an exception in the line that makes it, and
not one in the statement that also ends a thousand other attempts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from headrace.engine.arguments import MAX_INT, seconds
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
            raise InvalidInput(f"a status code must be a whole number, not {code!r:.100}")


class Retry(msgspec.Struct, frozen=True):
    """It failed, and that counts; it is tried again after this time, or when the policy says."""

    after: Duration | None = None
    reason: str = ""
    """For the log."""

    def __post_init__(self) -> None:
        _check_text(self.reason)
        if self.after is not None and not 0 <= seconds(self.after, "after") <= TEN_YEARS:
            raise InvalidInput("Retry(after=…) must be from 0 seconds to ten years")


class Discard(msgspec.Struct, frozen=True):
    """The event can never succeed: it is dead-lettered at once with this reason, for a person to
    look at."""

    reason: str

    def __post_init__(self) -> None:
        _check_text(self.reason)
        if not self.reason.strip():
            raise InvalidInput(
                "Discard(…) needs a reason that a person can read: it must not be empty"
            )


class Snooze(msgspec.Struct, frozen=True):
    """Not now: it is handled again after this time, at the earliest after 100 ms. That is no
    failure, and its progress is kept."""

    delay: Duration

    def __post_init__(self) -> None:
        if not 0 <= seconds(self.delay, "delay") <= TEN_YEARS:
            raise InvalidInput("Snooze(delay) must be from 0 seconds to ten years")


Outcome: TypeAlias = Done | Retry | Discard | Snooze

# Keys by which other systems' handlers say how they ended.
_TELLING = frozenset({"status", "status_code", "statusCode", "outcome", "error", "retry"})


def mistaken(returned: object) -> str | None:
    """What a returned value looks like, if its author meant an outcome by it. None: it has no
    meaning.

    Completing such an event would lose it: `return Retry` without parentheses asks for another
    attempt.
    """
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
        raise InvalidInput(f"a reason must be a string, not {type(reason).__name__}")
