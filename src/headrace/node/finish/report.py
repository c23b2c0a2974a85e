"""Tells the log how failed attempts go on: that the event is retried, and when, or that it is dead."""

from __future__ import annotations

import logging
from typing import Any

from headrace.model import Claimed, CutOff, Failed, Result, Verdict

logger = logging.getLogger("headrace.node")

LONGEST = 300  # characters of an error that has one line


def report(result: Result, verdict: Verdict) -> None:
    """Of an attempt that has ended in the database. The exception itself is in the log already."""
    claimed = result.claimed
    if not isinstance(result, Failed | CutOff) or not isinstance(claimed, Claimed):
        return
    if verdict.verdict not in ("counted", "repeated"):
        return
    fields: dict[str, Any] = {
        "event_id": claimed.id,
        "event_type": claimed.type,
        "attempt": claimed.attempt,
    }
    name = (claimed.id, claimed.type)
    if verdict.retry_at is not None:
        at = verdict.retry_at
        logger.info(
            "event %s (%s) will be retried%s, at %s: attempt %s has failed%s",
            *name,
            "" if verdict.at is None else f" in {(at - verdict.at).total_seconds():g} s",
            at.isoformat(timespec="seconds"),
            claimed.attempt,
            _said(result),
            extra={**fields, "outcome": "retried", "retry_at": at.isoformat()},
        )
    elif isinstance(result, Failed) or verdict.action == "DEAD_LETTERED":
        reason = _reason(result)
        logger.error(
            "event %s (%s) is dead-lettered after attempt %s: %s%s",
            *name,
            claimed.attempt,
            reason,
            _said(result),
            extra={**fields, "outcome": "dead_lettered", "reason": reason},
        )


def _reason(result: Failed | CutOff) -> str:
    reason = result.reason if isinstance(result, Failed) else None
    return reason or result.last_reason or "no retry is left"


def _said(result: Failed | CutOff) -> str:
    """The error, if a handler has returned it: one that was raised is in the log with its traceback."""
    error = str(result.error).strip()
    if not error or "\n" in error or (isinstance(result, Failed) and result.reason):
        return ""
    return f", {error[:LONGEST]}"
