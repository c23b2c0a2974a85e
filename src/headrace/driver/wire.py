"""Sends statements through libpq and reads their results, by generators that psycopg waits on,
plainly or awaiting."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import chain, count
from time import monotonic
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg import errors
from psycopg.abc import PQGen
from psycopg.adapt import PyFormat, Transformer
from psycopg.generators import execute
from psycopg.pq import (
    ConnStatus,
    DiagnosticField,
    ExecStatus,
    Format,
    PipelineStatus,
    TransactionStatus,
)
from psycopg.pq.abc import PGconn, PGresult
from psycopg.waiting import Wait

from headrace.driver.explain import (
    UNREPLICATED,
    NotStored,
    OutcomeUnknown,
    is_gone,
    is_unreplicated,
    unanswered,
)
from headrace.engine.statement import Row, Statement

T = TypeVar("T")

PREPARED = 100  # statements a session, as psycopg has it
AHEAD = 4  # statements that are sent together and not answered yet: they are kept in memory
UNKNOWN_NAME = b"26000"  # of a prepared statement

_PLACEHOLDER = re.compile(r"%([%s])")
_AUTO, _BINARY = PyFormat.AUTO, Format.BINARY


class Wire:
    """Sends statements and reads replies, as psycopg's cursors would. It keeps what they make
    again each time: how Python's values are written, how PostgreSQL's types are read, which
    statements are prepared."""

    def __init__(self, pgconn: PGconn) -> None:
        self._pgconn = pgconn
        # Without the connection it takes the encoding to be UTF-8, and in sessions of ours it is.
        self._adapter = Transformer()
        self._prepared: dict[tuple[str, tuple[int, ...]], bytes] = {}
        self._is_stopped = False
        # Whether all that is to be stored was sent: from then on the outcome is unknown without a
        # reply.
        self._was_sent = False
        self._is_unreplicated = False

    def noticed(self, notice: errors.Diagnostic) -> None:
        if is_unreplicated(notice):
            self._is_unreplicated = True

    def check_replicated(self) -> None:
        """Refuse a reply that reports success for a commit that did not wait for the standby."""
        if self._is_unreplicated:
            self._is_unreplicated = False
            raise OutcomeUnknown(UNREPLICATED)

    def says_all(self, error: psycopg.OperationalError) -> bool:
        """Whether an error says by itself what became of the call: an error that PostgreSQL
        replies with, in a session that goes on, means that nothing was stored."""
        if isinstance(error, Overdue):
            return self._was_sent
        answered = error.sqlstate is not None and not is_gone(error)
        return answered and self._pgconn.status == ConnStatus.OK

    def judged(self, error: psycopg.OperationalError) -> NotStored | OutcomeUnknown:
        """The meaning of any other error: not stored, or unknown."""
        if isinstance(error, Overdue):
            return unanswered(error.said, self._was_sent)
        said = str(error).strip().partition("\n")[0] or type(error).__name__
        return unanswered(f"the connection was lost ({said})", self._was_sent)

    def exchange(self, statement: Statement[Any], prepare: bool) -> PQGen[list[Row]]:
        """A generator for psycopg to wait on, plainly or awaiting."""
        self._was_sent = self._is_unreplicated = False
        params = self._dump(statement)
        if prepare:
            yield from self._prepare(statement)
        name = self._name(statement)
        self._send(statement, name, params)
        self._was_sent = True
        try:
            result = _last((yield from execute(self._pgconn)))
        except errors.InvalidSqlStatementName:  # another user of the session has deallocated it
            if name is None:
                raise
            self.forget()
            return (yield from self.exchange(statement, prepare=False))
        return self._rows(result)

    def exchange_all(
        self,
        statements: Iterable[Statement[Any]],
        *,
        begin: bool,
        commit: bool,
        prepare: bool = True,
        after: Sequence[Statement[Any]] | None = None,
    ) -> PQGen[list[RawReply]]:
        """Each statement is made while PostgreSQL executes the ones before. The last reply may
        be an error; then the statements behind it were not executed, and the transaction is
        rolled back. `after` follows the COMMIT: an error of `after` leaves all else committed.
        With `after`, even an empty one, everything is sent in one piece."""
        self._is_stopped = self._was_sent = self._is_unreplicated = False
        remaining = iter(statements)
        first = next(remaining)
        self._dump(first)
        if prepare:
            yield from self._prepare(first)  # and most of the other statements with it
        pipeline = _Pipeline(self._pgconn)
        tried: list[Statement[Any]] = []  # as long as none is done
        try:
            if begin:
                pipeline.send_words(b"begin")
            for statement in chain([first], remaining):
                self._go_on()
                tried = [] if pipeline.done else [*tried, statement]
                params = self._dump(statement)
                self._send(statement, self._name(statement), params)
                pipeline.sent.append(statement)
                if after is None and (yield from pipeline.has_failed(AHEAD)):
                    break
            self._go_on()
            if commit:
                self._was_sent = True  # first: sending `after` may fail
                self._send_end(pipeline, after or ())
        except Exception:
            # After Ctrl-C nothing is undone here: the caller would have to wait as long as the
            # server does.
            with suppress(psycopg.Error):  # the pool will close it
                yield from self._undo(pipeline, commit)
            raise
        yield from pipeline.end()
        if pipeline.failed is None:
            return pipeline.done
        yield from self._undo(pipeline, commit)
        # Another user of the session has deallocated it.
        if _sqlstate(pipeline.failed.result) == UNKNOWN_NAME:
            self.forget()
            self._go_on()
            if begin and tried and prepare:
                again = self.exchange_all(
                    chain(tried, remaining), begin=begin, commit=commit, prepare=False
                )
                return (yield from again)
        return [*pipeline.done, pipeline.failed]

    def _send_end(self, pipeline: _Pipeline, after: Sequence[Statement[Any]]) -> None:
        pipeline.send_words(b"commit")
        for statement in after:
            params = self._dump(statement)
            self._send(statement, self._name(statement), params)
            pipeline.sent.append(statement)

    def stop(self) -> None:
        """Send no more of the statements that go together: an interrupted caller reads on only
        to leave the connection in order, and the server may have finished the statement that it
        was asked to cancel."""
        self._is_stopped = True

    def _go_on(self) -> None:
        if self._is_stopped:
            raise errors.QueryCanceled("interrupted before all statements were sent")

    def _undo(self, pipeline: _Pipeline, commit: bool) -> PQGen[None]:
        if self._pgconn.status == ConnStatus.BAD:
            return
        yield from pipeline.end()
        if commit and self._pgconn.transaction_status != TransactionStatus.IDLE:
            yield from self.command(b"rollback")

    def command(self, words: bytes) -> PQGen[None]:
        """One or several that answer nothing, in one piece, as they are."""
        self._is_unreplicated = False
        self._pgconn.send_query(words)
        self._was_sent = True
        _last((yield from execute(self._pgconn)))

    def forget(self) -> None:
        """Nothing is prepared any more. An error that reports this would end a transaction of
        the caller's."""
        self._prepared.clear()

    def _dump(self, statement: Statement[Any]) -> Sequence[Any]:
        return self._adapter.dump_sequence(statement.params, [_AUTO] * len(statement.params))

    @property
    def _types(self) -> tuple[int, ...]:
        """Of what was dumped last."""
        return self._adapter.types or ()

    def _name(self, statement: Statement[Any]) -> bytes | None:
        return self._prepared.get((statement.sql, self._types))

    def _prepare(self, statement: Statement[Any]) -> PQGen[None]:
        """Of what was dumped last, unless it is prepared, or too much is."""
        if self._name(statement) is not None or len(self._prepared) >= PREPARED:
            return
        types = self._types
        name = _named(statement.sql, types)
        self._pgconn.send_prepare(name, _numbered(statement.sql), types)
        try:
            _last((yield from execute(self._pgconn)))
        except errors.DuplicatePreparedStatement:
            # Another client has prepared it, whose session a pooler has lent to us: the name says
            # that it is the same statement. In a transaction the error ends that.
            if self._pgconn.transaction_status != TransactionStatus.IDLE:
                raise
        self._prepared[statement.sql, types] = name

    def _send(self, statement: Statement[Any], name: bytes | None, params: Sequence[Any]) -> None:
        formats = self._adapter.formats
        if name is None:
            query = _numbered(statement.sql)
            self._pgconn.send_query_params(query, params, self._types, formats, _BINARY)
        else:
            self._pgconn.send_query_prepared(name, params, formats, _BINARY)

    def read_all(self, answers: list[RawReply]) -> Replies:
        error = None
        if answers and answers[-1].result.status == ExecStatus.FATAL_ERROR:
            *answers, failed = answers
            error = failed.statement, errors.error_from_result(failed.result)
        rows = [(s, self._rows(r) if r.ntuples else []) for s, r in answers if s is not None]
        return Replies(rows, error)

    def _rows(self, result: PGresult) -> list[Row]:
        adapter = self._adapter
        adapter.set_pgresult(result)
        rows = adapter.load_rows(0, result.ntuples, tuple)
        adapter.set_pgresult(None)
        return rows


class Overdue(OutcomeUnknown):
    """The time of a call is up."""

    def __init__(self, seconds: float) -> None:
        self.said = f"PostgreSQL did not answer within {seconds:g} s"
        super().__init__(f"{self.said}: the call took effect, or it did not")


def within(bound: float, until: float, exchange: PQGen[T], *, progress: bool = False) -> PQGen[T]:
    """An exchange that ends in time, one way or the other. With `progress`, each message from
    the server restarts the time limit. The waiting code comes through here every tenth of a
    second, so no timer is needed."""
    try:
        wanted = next(exchange)
        while True:
            if progress:
                until = monotonic() + bound
            while not (ready := (yield wanted)):
                if monotonic() >= until:
                    raise Overdue(bound)
            wanted = exchange.send(ready)
            if monotonic() >= until and not progress:
                raise Overdue(bound)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


class RawReply(NamedTuple):
    statement: Statement[Any] | None
    """None: it is the one to BEGIN or COMMIT."""
    result: PGresult


class Replies(NamedTuple):
    rows: list[tuple[Statement[Any], list[Row]]]
    error: tuple[Statement[Any] | None, psycopg.Error] | None
    """And the statement it is the answer to; None: to COMMIT, or BEGIN."""


class _Pipeline:
    """Statements that were sent, and the replies that have come. After an error nothing is
    executed."""

    def __init__(self, pgconn: PGconn) -> None:
        self._pgconn = pgconn
        self.sent: deque[Statement[Any] | None] = deque()  # None: a command whose reply has no rows
        self.done: list[RawReply] = []
        self.failed: RawReply | None = None
        pgconn.enter_pipeline_mode()

    def send_words(self, words: bytes) -> None:
        self._pgconn.send_query_params(words, None)
        self.sent.append(None)

    def has_failed(self, ahead: int) -> PQGen[bool]:
        """As far as is known when no more than `ahead` statements have no reply yet."""
        self._pgconn.send_flush_request()
        self._pgconn.flush()  # as much as goes now
        if len(self.sent) > ahead:
            yield from self._flush()
        while len(self.sent) > ahead and self.failed is None:
            yield from self._take()
        return self.failed is not None

    def end(self) -> PQGen[None]:
        """End the pipeline, even if an interruption has come and it is unknown which statements
        were sent."""
        if self._pgconn.pipeline_status == PipelineStatus.OFF:
            return
        self._synchronise()
        yield from self._flush()
        while (yield from self._take()):
            pass
        self._pgconn.exit_pipeline_mode()

    def _synchronise(self) -> None:
        try:
            self._pgconn.pipeline_sync()
        except psycopg.OperationalError:
            # Psycopg always says that there is no pipeline: its message is not the reason.
            raise psycopg.OperationalError(self._pgconn.error_message.decode().strip()) from None

    def _flush(self) -> PQGen[None]:
        while self._pgconn.flush():
            yield Wait.RW
            self._pgconn.consume_input()

    def _take(self) -> PQGen[bool]:
        """Take the next answer; False: it was the answer to the synchronisation."""
        result = yield from self._result()
        if result is None:  # the end of the answer before
            result = yield from self._result()
        if result is None:
            raise psycopg.OperationalError("PostgreSQL sent no reply to a statement")
        if result.status == ExecStatus.PIPELINE_SYNC:
            return False
        statement = self.sent.popleft() if self.sent else None
        if result.status == ExecStatus.FATAL_ERROR:
            self.failed = RawReply(statement, result)
        elif statement is not None and result.status != ExecStatus.PIPELINE_ABORTED:
            self.done.append(RawReply(statement, result))
        return True

    def _result(self) -> PQGen[PGresult | None]:
        while self._pgconn.is_busy():
            yield Wait.R
            self._pgconn.consume_input()
        return self._pgconn.get_result()


def _numbered(sql: str) -> bytes:
    """With the placeholders that PostgreSQL knows: $1 and so on."""
    numbers = count(1)
    return _PLACEHOLDER.sub(lambda p: "%" if p[1] == "%" else f"${next(numbers)}", sql).encode()


def _named(sql: str, types: tuple[int, ...]) -> bytes:
    """The name of a prepared statement. It is derived from the statement: clients whose sessions
    a pooler mixes up may find their own statement, or none, and never run another."""
    return b"headrace_" + blake2b(f"{types} {sql}".encode(), digest_size=16).hexdigest().encode()


def _last(results: list[PGresult]) -> PGresult:
    result = results[-1]
    if result.status == ExecStatus.FATAL_ERROR:
        raise errors.error_from_result(result)
    return result


def _sqlstate(result: PGresult) -> bytes | None:
    return result.error_field(DiagnosticField.SQLSTATE)
