"""Transactions that hold a handler's writes and the end of its attempt: both are committed, or
neither.

A transaction begins with a mark that ends with it, and the attempt is ended only where the mark
still is. So the node notices a handler that has committed or rolled back by itself before anything
more is written.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import psycopg

from headrace.driver import session_reset
from headrace.driver.async_pool import AsyncSessions
from headrace.driver.async_session import AsyncSession
from headrace.driver.pool import Sessions
from headrace.driver.run import run, run_async
from headrace.driver.session import Session
from headrace.driver.session_state import BOUND, UNBOUNDED
from headrace.driver.wire import Replies
from headrace.engine import inside
from headrace.engine.inside import Inside
from headrace.engine.statement import Statement
from headrace.errors import LeaseLost, Unavailable
from headrace.model import Claimed, Completed, Released, Result
from headrace.node.finish.finisher import Ended, Settled

COMMIT = b"commit"
CLOSING = 0.2  # seconds for the threads of a pool to end


class TransactionBroken(Exception):
    """A handler did to the connection it was given what only its node may do."""


class ConnectionLost(Exception):
    """The connection went away before a handler began, under it, or with the answer to COMMIT."""

    def __init__(self, error: BaseException, *, at_commit: bool, is_innocent: bool) -> None:
        super().__init__(str(error).strip() or type(error).__name__)
        self.at_commit = at_commit
        self.is_innocent = is_innocent
        """The handler had not begun, or the server has reported that another session crashed."""
        self.is_shutdown = isinstance(error, psycopg.errors.AdminShutdown)
        """The server was stopped in order, or something, perhaps the handler itself, has terminated
        the session."""


class AttemptLost(Exception):
    """Other workers have the leases of these events by now, and nothing was committed."""

    def __init__(self, ids: Sequence[int]) -> None:
        super().__init__()
        self.ids = ids


class Undone(Exception):
    """The handlers say that it has failed: nothing is committed."""

    def __init__(self, results: list[Result]) -> None:
        super().__init__()
        self.results = results


def undone(results: Sequence[Result]) -> Undone:
    """Those that have succeeded are handed back."""
    return Undone(
        [Released(result.claimed) if type(result) is Completed else result for result in results]
    )


def is_snooze(result: Result) -> bool:
    return type(result) is Released and result.delay is not None


class Ending:
    """How the attempts of some events end in the transaction of their handlers."""

    def __init__(
        self,
        names: tuple[str, str],
        claims: Sequence[Claimed],
        who: str,
        ms: Callable[[], int],
        *,
        is_of_one: bool = True,
    ) -> None:
        self._names = names
        self._claims = claims
        self._who = who
        self._ms = ms
        self._is_of_one = is_of_one
        self._mark = f"{claims[0].id}.{claims[0].attempt}"
        self._committing = False
        self._results: Sequence[Result] | None = None
        self.is_begun = False

    @property
    def begin(self) -> bytes:
        return f"begin; set local headrace.attempt = '{self._mark}'".encode()

    def check_results(self, results: Sequence[Result]) -> None:
        """All of them succeed together, or none does: those that would have are handed back. A
        snooze is no failure: what its handler has written and saved so far is committed with it.
        But not where several handlers share the transaction: those before it run again, too."""
        snoozes = self._is_of_one and any(map(is_snooze, results))
        if not all(
            type(result) is Completed or (snoozes and is_snooze(result)) for result in results
        ):
            raise undone(results)
        if snoozes:
            self._results = results

    def ended(self, results: Sequence[Result]) -> Sequence[Ended]:
        """The ends that are still to be reported, now that the transaction is committed."""
        return [Settled(result) for result in results]

    def complete(self) -> Statement[Inside]:
        if self._results is not None:
            return inside.finish_inside(*self._names, self._mark, self._results, self._ms())
        return inside.complete_inside(*self._names, self._mark, self._claims, self._ms())

    def complete_or_fail(self) -> Statement[bool] | None:
        """The same for one event, if it is one: the COMMIT is sent with it."""
        if len(self._claims) > 1 or self._results is not None:
            return None
        self._committing = True
        return inside.complete_or_fail(*self._names, self._mark, self._claims[0], self._ms())

    def check(self, inside: Inside) -> None:
        if not inside.is_ours:
            raise self._broken()
        if inside.lost:
            raise AttemptLost(inside.lost)
        if inside.has_failed:  # a snooze too many
            raise undone(self._results or ())
        self._committing = True

    def check_replies(self, replies: Replies) -> None:
        if replies.error is None:
            return
        statement, error = replies.error
        if statement in session_reset.TIDYING:
            return  # it is committed
        # None: the COMMIT has failed, by what a deferred trigger says.
        if statement is not None and isinstance(error, psycopg.errors.InvalidTextRepresentation):
            if inside.NOT_HELD in str(error):
                raise AttemptLost([self._claims[0].id])
            if inside.ELSEWHERE in str(error):
                raise self._broken()
        raise error

    def _broken(self) -> TransactionBroken:
        return TransactionBroken(
            f"{self._who} has ended the transaction it was given: its writes may be "
            "committed, and are done again with the next attempt. The node commits when the "
            "handler returns"
        )

    def explained(
        self,
        connection: Session | AsyncSession,
        error: BaseException,
    ) -> BaseException:
        if isinstance(error, AttemptLost | Undone | TransactionBroken):
            return error
        is_unanswered = (
            not connection.closed and isinstance(error, Unavailable) and self._is_of(connection)
        )
        if is_unanswered or (connection.broken and isinstance(error, Exception)):
            # Any error: the handler may have raised one of its own in its place.
            innocent = not self.is_begun or connection.is_bystander or is_unanswered
            return ConnectionLost(error, at_commit=self._committing, is_innocent=innocent)
        if connection.closed and isinstance(error, psycopg.Error):
            return TransactionBroken(f"{self._who} has closed the connection it was given")
        return error

    def _is_of(self, connection: Session | AsyncSession) -> bool:
        """Whether a call without a reply was one of the node's on this connection; the handler may
        have made another call, on a connection of its own."""
        return self._committing or connection.is_at_work

    def check_pipeline(self, connection: Session | AsyncSession) -> None:
        if connection.is_in_pipeline:
            raise TransactionBroken(
                f"{self._who} has left its connection in a pipeline, so nothing is committed: "
                "leave the pipeline before the handler returns, best with a `with` block"
            )


class Saving(Ending):
    """Not an end: the writes of one handler of several are kept, and the attempt goes on. progress:
    to be kept with it if it is done, `snoozed`: if it is not."""

    def __init__(
        self,
        names: tuple[str, str],
        claimed: Claimed,
        who: str,
        progress: Any,
        snoozed: Callable[[], Any],
    ) -> None:
        super().__init__(names, [claimed], who, lambda: 0)
        self._progress = progress
        self._snoozed = snoozed

    @property
    def snooze(self) -> Result | None:
        """How the attempt of the handler ended, if it snoozed."""
        return self._results[0] if self._results else None

    def ended(self, results: Sequence[Result]) -> Sequence[Ended]:
        return results

    def complete_or_fail(self) -> None:
        return None

    def complete(self) -> Statement[Inside]:
        progress = self._progress if self._results is None else self._snoozed()
        return inside.save_inside(*self._names, self._mark, self._claims[0], progress)

    def explained(
        self,
        connection: Session | AsyncSession,
        error: BaseException,
    ) -> BaseException:
        if isinstance(error, LeaseLost):
            return AttemptLost([self._claims[0].id])
        return super().explained(connection, error)


@contextmanager
def transaction(pool: Sessions, ending: Ending) -> Iterator[Session]:
    """For plain handlers. Commits when the block is left without an error."""
    try:
        connection = pool.getconn()
    except psycopg.OperationalError as error:
        raise ConnectionLost(error, at_commit=False, is_innocent=True) from error
    try:
        connection.command(session_reset.begin(connection, ending.begin))
        ending.is_begun = True
        connection.until = UNBOUNDED
        yield connection
        connection.until = None
        ending.check_pipeline(connection)
        session_reset.restore(connection)
        if connection.can_pipeline and (completion := ending.complete_or_fail()) is not None:
            replies = connection.ask_all(
                [completion],
                begin=False,
                commit=True,
                after=session_reset.behind_commit(connection),
            )
            ending.check_replies(replies)
            session_reset.tidy(connection, replies)
        else:
            ending.check(run(connection, ending.complete(), prepare=True))
            connection.command(COMMIT)
            session_reset.tidy(connection)
    except BaseException as error:
        found = ending.explained(connection, error)
        connection.until = None
        if not connection.is_at_work:  # else the pool closes it
            with suppress(psycopg.Error):
                if isinstance(found, TransactionBroken) or connection.is_in_pipeline:
                    connection.close()  # the handler may have left other things there
                else:
                    connection.rollback()
                    session_reset.restore(connection)
                    session_reset.tidy(connection)
        if found is error:
            raise
        raise found from error
    finally:
        pool.putconn(connection)


@asynccontextmanager
async def async_transaction(pool: AsyncSessions, ending: Ending) -> AsyncIterator[AsyncSession]:
    """For async handlers. Commits when the block is left without an error."""
    try:
        connection = await pool.getconn()
    except psycopg.OperationalError as error:
        raise ConnectionLost(error, at_commit=False, is_innocent=True) from error
    try:
        await connection.command(session_reset.begin(connection, ending.begin))
        ending.is_begun = True
        connection.until = UNBOUNDED
        yield connection
        connection.until = None
        ending.check_pipeline(connection)
        session_reset.restore(connection)
        if connection.can_pipeline and (completion := ending.complete_or_fail()) is not None:
            replies = await connection.ask_all(
                [completion],
                begin=False,
                commit=True,
                after=session_reset.behind_commit(connection),
            )
            ending.check_replies(replies)
            await session_reset.tidy_async(connection, replies)
        else:
            ending.check(await run_async(connection, ending.complete(), prepare=True))
            await connection.command(COMMIT)
            await session_reset.tidy_async(connection)
    except BaseException as error:
        found = ending.explained(connection, error)
        connection.until = None
        if not connection.is_at_work:  # else the pool closes it
            with suppress(psycopg.Error):
                if isinstance(found, TransactionBroken) or connection.is_in_pipeline:
                    await connection.close()
                else:
                    await connection.rollback()
                    session_reset.restore(connection)
                    await session_reset.tidy_async(connection)
        if found is error:
            raise
        raise found from error
    finally:
        await pool.putconn(connection)


class Pools:
    """The connections that handlers get, opened when the first one asks."""

    def __init__(self, dsn: str, size: int, *, prepare: bool, bound: float = BOUND) -> None:
        self._dsn = dsn
        self._options: dict[str, Any] = {
            "bound": bound,
            # Five times the same statement of a handler's is worth preparing, as psycopg has it.
            "kwargs": {"autocommit": True, "prepare_threshold": 5 if prepare else None},
            "min_size": 0,
            "max_size": size,
            "open": False,
        }
        self._async: AsyncSessions | None = None
        self._plain: Sessions | None = None
        self._opening = threading.Lock()

    async def for_async(self) -> AsyncSessions:
        if self._async is None:
            self._async = AsyncSessions(
                self._dsn,
                name="headrace handlers",
                configure=session_reset.lend_async,
                **self._options,
            )
            await self._async.open()
        return self._async

    def for_plain(self) -> Sessions:
        with self._opening:
            if self._plain is None:
                self._plain = Sessions(
                    self._dsn,
                    name="headrace handlers",
                    configure=session_reset.lend,
                    **self._options,
                )
                self._plain.open()
        return self._plain

    def spare(self, connection: Any, count: int) -> None:
        """Let a pool have `count` connections more: a handler does not give one of its own back."""
        pool = self._plain if isinstance(connection, psycopg.Connection) else self._async
        if pool is not None:
            pool.grow(count)

    async def close(self) -> None:
        closing: list[Awaitable[None]] = []
        if self._async is not None:
            closing.append(self._async.close(timeout=CLOSING))
        if self._plain is not None:
            closing.append(asyncio.to_thread(self._plain.close, timeout=CLOSING))
        await asyncio.gather(*closing)
