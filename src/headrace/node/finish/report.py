"""Tells the log of failed attempts, and how they go on: when the event is retried, or that it is
dead."""

from __future__ import annotations

import logging
from typing import Any

from headrace.model import Claimed, CutOff, Failed, Result, Verdict
from headrace.model.failure_text import failure_line, failure_text
from headrace.node.handler.payload import PayloadMismatch
from headrace.node.handler.surroundings import blamed

logger = logging.getLogger("headrace.node")

LONGEST = 300  # characters of an error that has one line


def report_failure(handler: str, claimed: Claimed, error: BaseException) -> None:
    """Of a handler that has raised. With the text of the traceback that is stored: whatever
    formats the record finds it there, and does not write out the exception, whose arguments may be
    of any size and content."""
    if not logger.isEnabledFor(logging.WARNING):
        return
    layer = blamed(error)
    record = logger.makeRecord(
        logger.name,
        logging.WARNING,
        __file__,
        0,
        "%s failed at event %s (%s, attempt %s)%s: %s",
        (
            handler,
            claimed.id,
            claimed.type,
            claimed.attempt,
            "" if layer is None else f", in {layer}",
            failure_line(error),
        ),
        None,
        func="report_failure",
        extra={**_fields(claimed), "handler": handler, "layer": layer},
    )
    if error.__traceback__ is not None and not isinstance(error, PayloadMismatch):
        record.exc_info = (type(error), error, error.__traceback__)
        record.exc_text = failure_text(error)
    logger.handle(record)


def report(result: Result, verdict: Verdict) -> None:
    """Of an attempt that has ended in the database. The exception itself is in the log already."""
    claimed = result.claimed
    if not isinstance(result, Failed | CutOff) or not isinstance(claimed, Claimed):
        return
    if verdict.verdict not in ("counted", "repeated"):
        return
    fields = _fields(claimed)
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


def _fields(claimed: Claimed) -> dict[str, Any]:
    return {"event_id": claimed.id, "event_type": claimed.type, "attempt": claimed.attempt}


def _reason(result: Failed | CutOff) -> str:
    reason = result.reason if isinstance(result, Failed) else None
    return reason or result.last_reason or "no retry is left"


def _said(result: Failed | CutOff) -> str:
    """The error, if a handler has returned it: one that was raised is in the log by now."""
    error = str(result.error).strip()
    if not error or "\n" in error or (isinstance(result, Failed) and result.reason):
        return ""
    return f", {error[:LONGEST]}"
