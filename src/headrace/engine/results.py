"""Claims and the ends of attempts, column by column, as the engine takes them."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from headrace.engine.arguments import MAX_ID, MAX_INT, array, error_text, seconds
from headrace.engine.backoff import policy
from headrace.errors import InvalidInput
from headrace.model import AnyClaim, Completed, CutOff, Released, Result

_TOKEN = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Proofs(NamedTuple):
    """Claims, column by column."""

    ids: list[int]
    attempts: list[int]
    leases: list[int | None]
    """None for one that is held on its own."""
    tokens: list[str | None]


class Ended(NamedTuple):
    """How each of the attempts ended, column by column."""

    ms: list[int | None]
    codes: list[int | None]
    others: str | None = None
    """Of those that are not completed."""


def proofs_of(claims: Sequence[AnyClaim]) -> Proofs | None:
    """None if there is one among them that PostgreSQL's types cannot hold."""
    proofs = Proofs(
        [claim.id for claim in claims],
        [claim.attempt for claim in claims],
        [None if claim.held else claim.lease for claim in claims],
        [claim.lease_token for claim in claims],
    )
    try:
        possible = (
            _within(MAX_ID, proofs.ids)
            and _within(MAX_INT, proofs.attempts)
            and _within(MAX_ID, {lease for lease in set(proofs.leases) if lease is not None})
            and all(map(is_token, set(proofs.tokens)))
        )
    except TypeError as error:
        raise InvalidInput(
            f"id, attempt and lease of a claim are numbers, its lease_token is a text: {error}"
        ) from error
    return proofs if possible else None


def is_token(given: str | None) -> bool:
    """Whether a lease can have this token; None: it is not said."""
    return given is None or _TOKEN.fullmatch(given) is not None


def in_common(tokens: list[str | None]) -> list[str | None] | None:
    """One for all, if it is the same; None if there is none."""
    different = set(tokens)
    if len(different) > 1:
        return tokens
    return None if different <= {None} else list(different)


def _within(most: int, numbers: Collection[int]) -> bool:
    return not numbers or (min(numbers) > 0 and max(numbers) <= most)


def other_end(result: Result) -> dict[str, Any]:
    if isinstance(result, Completed):
        return {"action": "complete"}
    if isinstance(result, Released):
        delay = None if result.delay is None else seconds(result.delay, "delay")
        released = {"action": "release", "progress": result.progress, "delay": delay}
        return {name: value for name, value in released.items() if value is not None}
    if isinstance(result, CutOff):
        abandoned = {
            "action": "abandon",
            "error": error_text(result.error),
            "max_retries": result.max_retries,
            "last_reason": result.last_reason,
            "status": result.status,
            "progress": result.progress,
        }
        return {name: value for name, value in abandoned.items() if value is not None}
    other = {
        "action": "fail",
        "error": error_text(result.error),
        "retry_in": None if result.retry_in is None else seconds(result.retry_in, "retry_in"),
        "max_retries": result.max_retries,
        "backoff": None if result.backoff is None else policy(result.backoff),
        "reason": None if result.reason is None else error_text(result.reason),
        "last_reason": None if result.last_reason is None else error_text(result.last_reason),
        "status": result.status,
        "progress": result.progress,
    }
    return {name: value for name, value in other.items() if value is not None}


def milliseconds(given: float | None) -> int | None:
    return None if given is None else min(max(int(given), 0), MAX_INT)


def unless_all_none(numbers: list[int | None]) -> str | None:
    return None if numbers.count(None) == len(numbers) else array(numbers)
