"""Checks arguments of callers and converts them to plain values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from operator import index

from headrace.errors import InvalidInput
from headrace.model import Duration
from headrace.model.failure_text import failure_text

MAX_ID = 2**63 - 1
MAX_INT = 2**31 - 1
MOST_ATTEMPTS = 1_000
MAX_ERROR = 65_536  # characters of an error that are stored


def seconds(duration: Duration, what: str) -> float:
    return interval(duration, what).total_seconds()


def time_limit(duration: Duration) -> float:
    """Seconds that each call may take."""
    limit = seconds(duration, "timeout")
    if not limit > 0:
        raise InvalidInput("timeout must be longer than 0 seconds")
    return limit


def interval(duration: Duration, what: str) -> timedelta:
    try:
        return duration if isinstance(duration, timedelta) else timedelta(seconds=duration)
    except TypeError as error:
        raise InvalidInput(f"{what} must be a number of seconds or a timedelta: {error}") from error
    except (ValueError, OverflowError) as error:  # NaN or infinite
        raise InvalidInput(
            f"{what} must be a number of seconds or a timedelta, and {duration} is not, or is too large"
        ) from error


def moment(at: datetime, what: str) -> str:
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise InvalidInput(f"{what} must be a datetime with a time zone, as in datetime.now(UTC)")
    try:
        return at.astimezone(UTC).isoformat()
    except OverflowError as error:
        raise InvalidInput(f"{what} is outside the years 1 to 9999") from error


def strings(given: Sequence[str] | None, what: str) -> list[str] | None:
    if given is None:
        return None
    if isinstance(given, str):
        raise InvalidInput(f"{what} must be a list of strings: [{given!r}] instead of {given!r}")
    texts: list[str] = list(given) if isinstance(given, Iterable) else []
    if not isinstance(given, Iterable) or not all(isinstance(text, str) for text in texts):
        raise InvalidInput(f"{what} must be a list of strings")
    return texts


def array(numbers: Sequence[int | None]) -> str:
    """An array in the syntax of PostgreSQL; psycopg takes four times as long for a thousand."""
    if set(map(type, numbers)) == {int}:
        alike = numbers.count(numbers[0]) == len(numbers)
        return f"{{{','.join([str(numbers[0])] * len(numbers) if alike else map(str, numbers))}}}"
    try:
        return f"{{{','.join('NULL' if n is None else str(index(n)) for n in numbers)}}}"
    except TypeError as error:
        raise InvalidInput(f"not a whole number: {error}") from error


def is_id(number: int) -> bool:
    """Whether an event can have this id; PostgreSQL could not read one beyond bigint."""
    try:
        return 0 < number <= MAX_ID
    except TypeError as error:
        raise InvalidInput(f"an id must be a whole number, not {number!r}") from error


def error_text(error: str | BaseException) -> str:
    """Any error as text that can be stored: reporting a failure must not fail."""
    if isinstance(error, BaseException):
        return failure_text(error)
    return (
        str(error)[:MAX_ERROR].encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
    )


def most_attempts(max_retries: int | None, max_attempts: int | None) -> int | None:
    """The number of attempts after which an event is dead, which has two names: `max_retries` is
    that of the documents, `max_attempts` says what it counts."""
    if max_attempts is None:
        return max_retries
    if type(max_attempts) is not int or not 1 <= max_attempts <= MOST_ATTEMPTS:
        raise InvalidInput(
            f"max_attempts must be a whole number from 1 to {MOST_ATTEMPTS}, "
            f"not {max_attempts!r:.100}"
        )
    if max_retries not in (None, max_attempts):
        raise InvalidInput(
            "max_attempts and max_retries are two names for one number, the attempts after which "
            f"an event is dead: give one of them, not {max_attempts} and {max_retries!r:.100}"
        )
    return max_attempts
