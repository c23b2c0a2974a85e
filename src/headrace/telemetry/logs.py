"""Logs for machines: a JSON object a line, with the event being handled, without passwords.

Headrace logs by the standard library, under "headrace", and sets nothing up by itself. `configure` is what the
command line does; a program with its own configuration names the formatter there:

    {"formatters": {"json": {"()": "headrace.logs.JsonFormatter"}}, …}
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

from headrace.model.failure_text import failure_text, shortened
from headrace.telemetry.current import node_name, running
from headrace.telemetry.redact import HIDDEN, NAMES, redacted

MOST = 65_536  # characters of a message, or of a field

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class TextFormatter(logging.Formatter):
    """Lines for people."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-8s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))

    def formatException(self, ei: Any) -> str:
        """As it is stored: of bounded length, and without the frames that called a handler."""
        return failure_text(ei[1]) if ei[1] is not None else ""


class JsonFormatter(logging.Formatter):
    """An object a line: at, level, logger, message, what `extra` has, the error with its traceback; and, of what is
    logged inside a handler by whomever, node, event_id, event_type and attempt."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redacted(shortened(_message(record), MOST)),
            **_handled(),
            **_extra(record),
        }
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = redacted(failure_text(record.exc_info[1]))
        if record.stack_info:
            line["stack"] = redacted(shortened(record.stack_info, MOST))
        return json.dumps(line)


def configure(
    *, json: bool = False, level: int | str = logging.INFO, stream: TextIO | None = None
) -> None:
    """Log to standard error, or to another stream, instead of to wherever it went before."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if json else TextFormatter())
    logging.basicConfig(handlers=[handler], level=level, force=True)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # the line must appear, and must not stop other lines
        return f"{record.msg!s:.1000} (cannot be formatted: {error})"


def _handled() -> dict[str, Any]:
    node, context = node_name.get(), running()
    work: dict[str, Any] = {} if node is None else {"node": node}
    if context is not None:
        event = context.event
        work |= {"event_id": event.id, "event_type": event.type, "attempt": event.attempt}
    return work


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {
        name: _plain(value)
        for name, value in vars(record).items()
        if name not in _OWN and not name.startswith("_") and value is not None
    }


def _plain(value: Any) -> Any:
    """A value as JSON has it, and as text what it has no form for."""
    try:
        written = json.dumps(value, allow_nan=False, default=_text)
    except Exception:
        written = None
    if written is None or len(written) > MOST:
        return redacted(shortened(written or _text(value), MOST))
    return _without_passwords(json.loads(written))


def _without_passwords(value: Any) -> Any:
    match value:
        case str():
            return redacted(value)
        case list():
            return [_without_passwords(one) for one in value]
        case dict():
            return {
                name: HIDDEN if name.lower() in NAMES else _without_passwords(one)
                for name, one in value.items()
            }
    return value


def _text(value: object) -> str:
    try:
        return shortened(str(value), MOST)
    except Exception:
        return f"({type(value).__name__}, whose __str__ raised)"
