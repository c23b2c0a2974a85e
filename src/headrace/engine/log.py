"""The log: what happened to an event, and the stream of the whole namespace."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from headrace.engine import cursors
from headrace.engine.arguments import is_id, strings
from headrace.engine.caller import Caller
from headrace.engine.statement import Row, Statement, Steps, ask, instant_or_none, timed
from headrace.model import LogEntry, LogPage


def event_log(namespace: str, event_id: int) -> Statement[list[LogEntry]]:
    return Statement(
        "select id, queue, action, worker_id, attempt, status_code, error_message, "
        "execution_time_ms, pg_catalog.timestamptz_send(created_at), %s::bigint "
        "from headrace.event_log(%s, %s::bigint)",
        (event_id, namespace, event_id),
        lambda rows: [LogEntry(*timed(row, 8)) for row in rows],
    )


def log_since(
    namespace: str, after: int, limit: int, actions: list[str] | None, mark: str | None
) -> Statement[LogPage]:
    def read(rows: list[Row]) -> LogPage:
        *entries, (after, *_, mark, read_to, rewound_to) = rows
        told = [LogEntry(*timed(row[:-3], 8)) for row in entries]
        return LogPage(told, after, mark, read_to, rewound_to)

    return Statement(
        "select id, queue, action, worker_id, attempt, status_code, error_message, "
        "execution_time_ms, pg_catalog.timestamptz_send(created_at), event_id, type, next_mark, read_to, "
        "rewound_to from headrace.log_since(%s, %s::bigint, %s::int, %s::pg_catalog.text[], %s)",
        (namespace, after, limit, actions, mark),
        read,
    )


class LogWait(NamedTuple):
    """A transaction that a reader of the log waits for."""

    pid: int | None
    """None: it is prepared for a commit in two phases."""
    since: datetime | None


def log_waits(mark: str) -> Statement[LogWait | None]:
    """The transaction that the reader with this mark waits for."""
    return Statement(
        "select pid, pg_catalog.timestamptz_send(since) from headrace.log_waits(%s)",
        (mark,),
        lambda rows: LogWait(rows[0][0], instant_or_none(rows[0][1])) if rows else None,
    )


class NumberLine(NamedTuple):
    """The ids of a database: up to the mark all of them, above it every `stride`th."""

    end: int
    stride: int
    mark: int

    @property
    def places(self) -> int:
        return self.mark + (self.end - self.mark) // self.stride

    def after(self, id: int, count: int) -> int:
        """Beyond the next so many ids; they may be fewer where the mark is among them."""
        return id + count * (self.stride if id >= self.mark else 1) + 1

    def before(self, id: int, count: int) -> int:
        """Beyond the last so many ids before this one, but not beyond the mark."""
        if id > self.mark + 1:
            return max(id - count * self.stride - 1, self.mark)
        return id - count - 1


def number_line() -> Statement[NumberLine]:
    return Statement(
        "select headrace.log_end(), stride, mark from headrace.shard()",
        (),
        lambda rows: NumberLine(rows[0][0] >> 10, rows[0][1], rows[0][2]),
    )


def log_end() -> Statement[int]:
    """Where the log ends now."""
    return Statement("select headrace.log_end()", (), lambda rows: rows[0][0])


def log_now() -> Statement[tuple[str, int]]:
    """A mark for `log_since`, to read what happens from now on, and where the log ends now."""
    return Statement("select * from headrace.log_now()", (), lambda rows: rows[0])


class LogVerbs(Caller):
    """Verbs that read the log."""

    def log(self, id: int) -> Steps[list[LogEntry]]:
        """What happened to an event, in order, in all its queues; nothing for an event that does
        not exist."""
        if not is_id(id):
            return []
        return (yield from ask(event_log(self.namespace, id)))

    def log_since(
        self,
        after: int | str = 0,
        *,
        limit: int = 100,
        actions: Sequence[str] | None = None,
        mark: str | None = None,
    ) -> Steps[LogPage]:
        """The log of the whole namespace after an entry, in order, as a stream that skips nothing:
        the call waits for transactions that may still commit in between. Go on with the page's own
        `cursor` and `mark`.

        after: the cursor of a page that was read, or the number of an entry. A cursor knows when a
        standby was promoted or a backup restored since: then the page repeats entries, and says so,
        rather than skip any.
        """
        wanted = strings(actions, "actions")
        after, cursor = cursors.read(after)
        mark = mark or cursor
        page = yield from ask(log_since(self.namespace, after, limit, wanted, mark))
        if mark == cursor and not page.entries:
            # Open transactions kept entries from being final; most of those have ended by now.
            page = yield from ask(log_since(self.namespace, after, limit, wanted, page.mark))
        return page
