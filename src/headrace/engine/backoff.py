"""Backoff policies as the engine reads them; it computes the delays
(sql/functions/finish/_backoff.sql)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from headrace.engine.arguments import seconds
from headrace.errors import InvalidInput
from headrace.model import Backoff, Duration, Exponential, Fixed, Linear

YEAR = 365 * 86_400
MAX_FACTOR = 100

_ALL = {"delay": (0, YEAR), "max_delay": (0, YEAR), "jitter": (0, 1)}
_PARTS = {
    "fixed": _ALL,
    "linear": {**_ALL, "step": (0, YEAR)},
    "exponential": {**_ALL, "factor": (1, MAX_FACTOR)},
}


def policy(backoff: Backoff, what: str = "backoff") -> Mapping[str, Any]:
    """The policy as a mapping. A given mapping is passed on unchecked: the engine checks it."""
    match backoff:
        case Mapping():
            return backoff
        case Fixed(delay, jitter):
            return _policy("fixed", jitter, delay=_delay(delay, "delay"))
        case Linear(first, step, longest, jitter):
            return _policy(
                "linear",
                jitter,
                delay=_delay(first, "first"),
                step=None if step is None else _delay(step, "step"),
                max_delay=_longest(longest, first),
            )
        case Exponential(first, factor, longest, jitter):
            return _policy(
                "exponential",
                jitter,
                delay=_delay(first, "first"),
                factor=_number(factor, "factor", 1, MAX_FACTOR),
                max_delay=_longest(longest, first),
            )
        case timedelta() | int() | float() if not isinstance(backoff, bool):
            return policy(Fixed(backoff))
    raise InvalidInput(
        f"a {what} must be Fixed, Linear or Exponential, a number of seconds, a timedelta, or a mapping, "
        f"not {type(backoff).__name__}"
    )


def checked(backoff: Backoff) -> Mapping[str, Any]:
    """The policy, with a given mapping checked too: the engine would refuse it only when it is
    needed, and with it everything else in the same statement."""
    told = policy(backoff)
    kind = str(told.get("kind"))
    if kind not in _PARTS:
        raise InvalidInput("the kind of a backoff must be fixed, linear or exponential")
    if "delay" not in told:
        raise InvalidInput("a backoff must have a delay")
    for name in told.keys() - {"kind"}:
        if name not in _PARTS[kind]:
            raise InvalidInput(f"a {kind} backoff has no field {name!r}")
        _number(told[name], name, *_PARTS[kind][name])
    return told


def _policy(kind: str, jitter: float, **fields: float | None) -> Mapping[str, Any]:
    parts = {**fields, "jitter": round(_number(jitter, "jitter", 0, 1), 3) or None}
    return {"kind": kind} | {name: value for name, value in parts.items() if value is not None}


def _delay(given: Duration, what: str) -> float:
    delay = seconds(given, f"the {what} of a backoff")
    if not (delay == 0 or 0.001 <= delay <= YEAR):
        raise InvalidInput(f"the {what} of a backoff must be from a millisecond to a year, or 0")
    return delay


def _longest(given: Duration, first: Duration) -> float:
    longest = _delay(given, "longest")
    if longest < _delay(first, "first"):
        raise InvalidInput("the longest of a backoff is shorter than its first delay")
    return longest


def _number(given: float, what: str, least: float, most: float) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not least <= given <= most:
        raise InvalidInput(f"the {what} of a backoff must be a number from {least} to {most}")
    if 0 < given < 0.001:
        raise InvalidInput(f"the {what} of a backoff must be at least 0.001, or 0")
    return given
