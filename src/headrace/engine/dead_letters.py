"""Dead letters: looked at, by kind of error, redriven."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from headrace.engine.administer import AdministerVerbs, Step, read_step
from headrace.engine.arguments import array, moment, strings
from headrace.engine.look import described
from headrace.engine.statement import Row, Statement, Steps, ask, instant_or_none
from headrace.model import DeadLetter, DeadLetterGroup, instant, told

_LETTER_COLUMNS = (
    *("id", "type", "tags", "payload", "details", "priority", "status", "reason", "error"),
    *("fingerprint", "attempts", "retry_count", "crashes", "max_retries", "key"),
    *("created_at", "died_at"),
)


_SELECT_LETTERS = """\
select id, type, tags, payload::pg_catalog.text, details::pg_catalog.text, priority, status, reason, error,
       fingerprint, attempts, retry_count, crashes, max_retries, key,
       pg_catalog.timestamptz_send(created_at), pg_catalog.timestamptz_send(died_at)
from headrace."""


class Letters(NamedTuple):
    """The choice of dead letters, in the order of the engine's arguments."""

    types: list[str] | None
    fingerprint: str | None
    since: str | None
    until: str | None
    limit: int
    before: int | None
    payload: bool


def dead_letters(namespace: str, queue: str, letters: Letters) -> Statement[list[DeadLetter]]:
    return Statement(
        _SELECT_LETTERS
        + "dead_letters(%s, %s, %s::pg_catalog.text[], %s, %s::pg_catalog.timestamptz, %s::pg_catalog.timestamptz, "
        "%s::int, %s::bigint, %s::boolean)",
        (namespace, queue, *letters),
        lambda rows: [_read_letter(row) for row in rows],
    )


def dead_letter(namespace: str, queue: str, event_id: int) -> Statement[DeadLetter]:
    return Statement(
        _SELECT_LETTERS + "dead_letter(%s, %s::bigint, %s)",
        (namespace, event_id, queue),
        lambda rows: _read_letter(rows[0]),
    )


def _read_letter(row: Row) -> DeadLetter:
    values = dict(zip(_LETTER_COLUMNS, row, strict=True))
    details, payload = values.pop("details"), values["payload"]
    values |= {"tags": tuple(values["tags"] or ())}
    values |= {"payload": None if payload is None else told(payload)}
    values |= {name: instant_or_none(values[name]) for name in ("created_at", "died_at")}
    return DeadLetter(**{"title": values["type"], **values, **described(details)})


def dead_letter_groups(namespace: str, queue: str, limit: int) -> Statement[list[DeadLetterGroup]]:
    return Statement(
        "select fingerprint, message, types, letters, pg_catalog.timestamptz_send(first_died_at), "
        "pg_catalog.timestamptz_send(last_died_at), sample_ids "
        "from headrace.dead_letter_groups(%s, %s, %s::int)",
        (namespace, queue, limit),
        lambda rows: [
            DeadLetterGroup(a, b, tuple(c), d, instant(e), instant(f), tuple(g))
            for a, b, c, d, e, f, g in rows
        ],
    )


def redrive(
    namespace: str,
    queue: str,
    ids: Sequence[int] | None,
    types: list[str] | None,
    fingerprint: str | None,
    rate: float | None,
    reason: str,
    actor: str,
    last: Step | None = None,
) -> Statement[Step]:
    return Statement(
        "select pg_catalog.timestamptz_send(started_at), done, more "
        "from headrace.redrive(%s, %s, %s::bigint[], %s::pg_catalog.text[], %s, %s::pg_catalog.float8, %s, %s, "
        "started_at => %s::pg_catalog.timestamptz, done => %s::bigint)",
        (
            *(namespace, queue, None if ids is None else array(ids), types, fingerprint),
            *(rate, reason, actor),
            *((last.started_at, last.done) if last else (None, 0)),
        ),
        read_step,
    )


class DeadLetterVerbs(AdministerVerbs):
    """Verbs about dead letters."""

    def dead_letters(
        self,
        *,
        types: Sequence[str] | None = None,
        fingerprint: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 20,
        before: int | None = None,
        payload: bool = False,
    ) -> Steps[list[DeadLetter]]:
        """The dead letters of this queue, the newest event first; of some types, of one kind of
        error, or dead from `since` to before `until`. Page on with `before`, an id. Payloads come
        on request."""
        letters = Letters(
            strings(types, "types"),
            fingerprint,
            None if since is None else moment(since, "since"),
            None if until is None else moment(until, "until"),
            limit,
            before,
            payload,
        )
        return ask(dead_letters(*self.names, letters))

    def dead_letter(self, id: int) -> Steps[DeadLetter]:
        """One dead letter, with its payload, why it died and where it came from."""
        self._must_be_id(id)
        return (yield from ask(dead_letter(*self.names, id)))

    def dead_letter_groups(self, *, limit: int = 100) -> Steps[list[DeadLetterGroup]]:
        """The dead letters of this queue by kind of error, the most frequent kind first."""
        return ask(dead_letter_groups(*self.names, limit))

    def redrive(
        self,
        ids: Iterable[int] | None = None,
        *,
        types: Sequence[str] | None = None,
        fingerprint: str | None = None,
        rate: float | None = None,
        reason: str = "",
        actor: str | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> Steps[int]:
        """Retry dead letters of this queue, the longest dead first, and return how
        many: all of them, or those that are named, by id, by type, or by the `fingerprint` of an
        error (see `dead_letter_groups`). With a `rate`, so many a second. It is done in steps, each
        committed on its own, and `progress` is called after each with how many there were so
        far."""
        asked = (strings(types, "types"), fingerprint, rate, reason, actor or self.worker)
        return self._in_steps(
            ids,
            lambda chunk, last: redrive(self.namespace, self.queue_name, chunk, *asked, last),
            progress,
        )
