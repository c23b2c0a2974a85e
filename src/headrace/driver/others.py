"""Runs statements on connections of other libraries, inside the transaction that those are in.

Each library is used through its public interface, so our statements are to it like any of its
user's: it begins its transaction, checks and logs as ever. None of them is imported: a
connection is known by the name of its class. Nothing here commits, rolls back or closes what is
not ours.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from itertools import count
from typing import Any, TypeAlias

from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import TransactionStatus

from headrace.driver.explain import explained
from headrace.engine.statement import Row, Statement, Together
from headrace.errors import InvalidInput

Step: TypeAlias = Statement[Any] | Together
Texts: TypeAlias = tuple[str | None, ...]

_DRIVERS = ("psycopg", "psycopg2", "asyncpg")  # the drivers with errors that we can read


class Foreign(ABC):
    """Another library's connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def run(self, step: Step) -> Any:
        """Run a statement in whatever transaction the connection is in, and read its reply."""
        if isinstance(step, Together):
            with self._transaction():
                return [self.run(one) for one in step.statements]
        with explained(step):
            rows = self._execute(step.sql, _texts(step.params))
        return step.read(rows)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        if not self._is_alone():
            yield
            return
        self._execute("begin")
        try:
            yield
        except BaseException:
            with suppress(Exception):  # the first error is the one to raise
                self._execute("rollback")
            raise
        self._execute("commit")

    @abstractmethod
    def _execute(self, query: str, params: Texts = ()) -> list[Row]: ...

    @abstractmethod
    def _is_alone(self) -> bool:
        """Whether each statement is a transaction of its own."""


class SQLAlchemyConnection(Foreign):
    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        _check_database(connection.dialect.name)
        if connection.dialect.driver not in _DRIVERS:
            raise InvalidInput(
                f"Headrace supports SQLAlchemy's drivers {', '.join(_DRIVERS)}, not "
                f"{connection.dialect.driver}"
            )

    def _execute(self, query: str, params: Texts = ()) -> list[Row]:
        if self._connection.dialect.paramstyle == "numeric_dollar":
            query = _with_dollars(query)
        result = self._connection.exec_driver_sql(query, params)
        return [tuple(row) for row in result] if result.returns_rows else []

    def _is_alone(self) -> bool:
        # Otherwise it begins a transaction by itself, with the first statement.
        pooled = self._connection.connection
        return pooled.dbapi_connection.autocommit and _is_idle(pooled.driver_connection)


def _of_session(session: Any) -> SQLAlchemyConnection:
    return SQLAlchemyConnection(session.connection())


class DjangoConnection(Foreign):
    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        _check_database(connection.vendor)

    def _execute(self, query: str, params: Texts = ()) -> list[Row]:
        with self._connection.cursor() as cursor:
            cursor.execute(query, params or None)
            return cursor.fetchall() if cursor.description else []

    def _is_alone(self) -> bool:
        # Inside atomic() it is off.
        return self._connection.get_autocommit() and _is_idle(self._connection.connection)


class AsyncForeign(ABC):
    """Another library's connection that is awaited."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @abstractmethod
    async def run(self, step: Step) -> Any:
        """Run a statement in whatever transaction the connection is in, and read its reply."""


class AsyncSQLAlchemy(AsyncForeign):
    """An AsyncConnection or an AsyncSession: both have a plain one inside and know how to await
    it."""

    async def run(self, step: Step) -> Any:
        return await self._connection.run_sync(lambda plain: join(plain).run(step))


def _of_scoped_session(session: Any) -> AsyncSQLAlchemy:
    return AsyncSQLAlchemy(session())


class AsyncpgConnection(AsyncForeign):
    async def run(self, step: Step) -> Any:
        if isinstance(step, Together):
            async with self._transaction():
                return [await self.run(one) for one in step.statements]
        with explained(step):
            rows = await self._connection.fetch(_with_dollars(step.sql), *_texts(step.params))
        return step.read([tuple(row) for row in rows])

    def _transaction(self) -> Any:
        joined = self._connection.is_in_transaction()
        return nullcontext() if joined else self._connection.transaction()


_PLAIN: Mapping[str, Callable[[Any], Foreign]] = {
    "sqlalchemy.engine.base.Connection": SQLAlchemyConnection,
    "sqlalchemy.orm.session.Session": _of_session,
    "sqlalchemy.orm.scoping.scoped_session": _of_session,
    "django.db.backends.base.base.BaseDatabaseWrapper": DjangoConnection,
    "django.utils.connection.ConnectionProxy": DjangoConnection,
}
_AWAITED: Mapping[str, Callable[[Any], AsyncForeign]] = {
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": AsyncSQLAlchemy,
    "sqlalchemy.ext.asyncio.session.AsyncSession": AsyncSQLAlchemy,
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session": _of_scoped_session,
    "asyncpg.connection.Connection": AsyncpgConnection,
    "asyncpg.pool.PoolConnectionProxy": AsyncpgConnection,
}
_PSYCOPG, _ASYNC_PSYCOPG = "psycopg.Connection", "psycopg.AsyncConnection"


def join(connection: object) -> Foreign:
    """The adapter that runs statements on a plain connection."""
    for name in _names(connection):
        if name in _PLAIN:
            return _PLAIN[name](connection)
        if name in _AWAITED or name == _ASYNC_PSYCOPG:
            raise InvalidInput(f"an EventQueue cannot await a {name}: use an AsyncEventQueue")
    raise InvalidInput(
        "an EventQueue works on a psycopg.Connection, a Connection or Session of SQLAlchemy, or a "
        f"connection of Django, not on {type(connection)}"
    )


def join_async(connection: object) -> AsyncForeign:
    """The adapter that runs statements on an async connection."""
    for name in _names(connection):
        if name in _AWAITED:
            return _AWAITED[name](connection)
        if name in _PLAIN or name == _PSYCOPG:
            raise InvalidInput(
                f"an AsyncEventQueue would block its loop on a {name}: use an EventQueue"
            )
    raise InvalidInput(
        "an AsyncEventQueue works on a psycopg.AsyncConnection, an AsyncConnection or AsyncSession "
        f"of SQLAlchemy, or a Connection of asyncpg, not on {type(connection)}"
    )


def _names(connection: object) -> list[str]:
    # Of __class__ and not of type(): there a proxy says what it stands for.
    return [f"{kind.__module__}.{kind.__qualname__}" for kind in connection.__class__.__mro__]


def _check_database(name: str) -> None:
    if name != "postgresql":
        raise InvalidInput(f"Headrace needs a connection to PostgreSQL, and this one is to {name}")


def _is_idle(driver: Any) -> bool:
    """Whether the driver knows of no transaction either: its user may have sent a BEGIN."""
    if hasattr(driver, "is_in_transaction"):
        return not driver.is_in_transaction()
    return bool(driver.info.transaction_status == TransactionStatus.IDLE)


def _texts(params: Sequence[Any]) -> Texts:
    """Parameters as the text that PostgreSQL parses: the one form that all drivers send alike."""
    dumped = Transformer().dump_sequence(params, [PyFormat.TEXT] * len(params))
    return tuple(None if one is None else bytes(one).decode() for one in dumped)


@cache
def _with_dollars(query: str) -> str:
    """For asyncpg, which asks the server for each parameter's type and wants a value of that
    type."""
    numbers = count(1)
    return re.sub(
        "%([%s])", lambda p: "%" if p[1] == "%" else f"${next(numbers)}::pg_catalog.text", query
    )
