"""How long to wait before a failed event is tried again.

The engine works it out (sql/functions/backoff.sql), so a policy is a small mapping, as JSON has it. The
structs are a way to write one that an editor can complete; a number of seconds is a fixed delay.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TypeAlias

import msgspec

from headrace.arguments import seconds
from headrace.errors import InvalidInput
from headrace.model import Duration

YEAR = 365 * 86_400.0
MAX_FACTOR = 100


class Fixed(msgspec.Struct, frozen=True):
    """The same delay every time. `jitter` adds up to this part of it, at random; it never takes away."""

    delay: Duration = 300
    jitter: float = 0

    @property
    def policy(self) -> Mapping[str, Any]:
        return _policy("fixed", delay=_delay(self.delay, "delay"), jitter=_jitter(self.jitter))


class Linear(msgspec.Struct, frozen=True):
    """`first`, then `step` more after each failure (as much as `first`, unless it is given), up to `longest`."""

    first: Duration = 60
    step: Duration | None = None
    longest: Duration = 86_400
    jitter: float = 0

    @property
    def policy(self) -> Mapping[str, Any]:
        return _policy(
            "linear",
            delay=_delay(self.first, "first"),
            step=None if self.step is None else _delay(self.step, "step"),
            max_delay=_longest(self.longest, self.first),
            jitter=_jitter(self.jitter),
        )


class Exponential(msgspec.Struct, frozen=True):
    """`first`, then `factor` times as long after each failure, up to `longest`; and up to a tenth more, at random,
    so that what failed together is not tried again together."""

    first: Duration = 5
    factor: float = 2
    longest: Duration = 3_600
    jitter: float = 0.1

    @property
    def policy(self) -> Mapping[str, Any]:
        return _policy(
            "exponential",
            delay=_delay(self.first, "first"),
            factor=_number(self.factor, "factor", 1, MAX_FACTOR),
            max_delay=_longest(self.longest, self.first),
            jitter=_jitter(self.jitter),
        )


Backoff: TypeAlias = Fixed | Linear | Exponential | Duration | Mapping[str, Any]


def policy_of(backoff: Backoff) -> Mapping[str, Any]:
    """A policy as the engine takes it. A mapping is passed on as it is: the engine knows what it may say."""
    match backoff:
        case Fixed() | Linear() | Exponential():
            return backoff.policy
        case Mapping():
            return backoff
        case timedelta() | int() | float() if not isinstance(backoff, bool):
            return Fixed(backoff).policy
    raise InvalidInput(
        "a backoff is Fixed, Linear or Exponential, a number of seconds, a timedelta, or a mapping, "
        f"not {type(backoff).__name__}"
    )


def _policy(kind: str, **fields: float | None) -> Mapping[str, Any]:
    return {"kind": kind} | {name: value for name, value in fields.items() if value is not None}


def _delay(given: Duration, what: str) -> float:
    delay = seconds(given, f"the {what} of a backoff")
    if not (delay == 0 or 0.001 <= delay <= YEAR):
        raise InvalidInput(f"the {what} of a backoff is from a millisecond to a year, or 0")
    return delay


def _longest(given: Duration, first: Duration) -> float:
    longest = _delay(given, "longest")
    if longest < _delay(first, "first"):
        raise InvalidInput("the longest of a backoff is shorter than its first delay")
    return longest


def _jitter(given: float) -> float | None:
    return round(_number(given, "jitter", 0, 1), 3) or None


def _number(given: float, what: str, least: float, most: float) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not least <= given <= most:
        raise InvalidInput(f"the {what} of a backoff is a number from {least} to {most}")
    return given
