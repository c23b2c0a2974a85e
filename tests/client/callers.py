"""Callers with connections of their own: of every library whose transactions we join, behind one face."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from typing import Any, NamedTuple

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.client.clients import Client
from tests.database import Database

pytest.importorskip("psycopg2")
asyncpg = pytest.importorskip("asyncpg")
django = pytest.importorskip("django.test.utils") and pytest.importorskip("django")
sa = pytest.importorskip("sqlalchemy")
sa_async = pytest.importorskip("sqlalchemy.ext.asyncio")
orm = pytest.importorskip("sqlalchemy.orm")


class Library(NamedTuple):
    """How its users open a connection, begin a transaction (inside another one: a savepoint), write."""

    client: str
    open: Callable[[Database], Any]
    begin: Callable[[Any], Any]
    execute: Callable[[Any, str], Any]


class GivenUpError(Exception):
    """What a caller leaves a transaction by that is not to be committed."""


class Caller:
    """Somebody with a connection to a database in which there is a table `orders` of theirs."""

    def __init__(self, library: Library, client: Client, connection: Any) -> None:
        self._library = library
        self._client = client
        self.connection = connection

    def begin(self) -> AbstractContextManager[Any]:
        return self._client.within(self._library.begin(self.connection))

    @contextmanager
    def rolled_back(self) -> Iterator[None]:
        with suppress(GivenUpError), self.begin():
            yield
            raise GivenUpError

    def order(self, id: int) -> None:
        self._client.call(
            self._library.execute, self.connection, f"insert into orders values ({id})"
        )


def where(db: Database, database: str = "database") -> dict[str, Any]:
    known = conninfo_to_dict(db.dsn)
    place = {"host": known["host"], "port": int(known["port"]), "user": known["user"]}
    return {**place, database: known["dbname"]}


# psycopg


@contextmanager
def psycopg_connection(db: Database) -> Iterator[Any]:
    with psycopg.connect(db.dsn) as connection:
        yield connection


@asynccontextmanager
async def async_psycopg_connection(db: Database) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(db.dsn) as connection:
        yield connection


def begin(connection: Any) -> Any:
    return connection.transaction()


def execute(connection: Any, sql: str) -> Any:
    return connection.execute(sql)


# SQLAlchemy


@contextmanager
def engine(db: Database, driver: str, **options: Any) -> Iterator[Any]:
    name = "dbname" if driver.startswith("psycopg") else "database"
    place = where(db, name)
    engine = sa.create_engine(f"postgresql+{driver}://", connect_args=place, **options)
    yield engine
    engine.dispose()


@asynccontextmanager
async def async_engine(db: Database, driver: str, **options: Any) -> AsyncIterator[Any]:
    name = "dbname" if driver.startswith("psycopg") else "database"
    place = where(db, name)
    engine = sa_async.create_async_engine(f"postgresql+{driver}://", connect_args=place, **options)
    yield engine
    await engine.dispose()


def connection_of(driver: str, **options: Any) -> Callable[[Database], Any]:
    @contextmanager
    def open(db: Database) -> Iterator[Any]:
        with engine(db, driver, **options) as made, made.connect() as connection:
            yield connection

    return open


def session_of(driver: str) -> Callable[[Database], Any]:
    @contextmanager
    def open(db: Database) -> Iterator[Any]:
        with engine(db, driver) as made, orm.Session(made) as session:
            yield session

    return open


@contextmanager
def scoped(db: Database) -> Iterator[Any]:
    with engine(db, "psycopg") as made:
        session = orm.scoped_session(orm.sessionmaker(made))
        yield session
        session.remove()


def async_connection_of(driver: str, **options: Any) -> Callable[[Database], Any]:
    @asynccontextmanager
    async def open(db: Database) -> AsyncIterator[Any]:
        async with async_engine(db, driver, **options) as made, made.connect() as connection:
            yield connection

    return open


def async_session_of(driver: str) -> Callable[[Database], Any]:
    @asynccontextmanager
    async def open(db: Database) -> AsyncIterator[Any]:
        async with async_engine(db, driver) as made, sa_async.AsyncSession(made) as session:
            yield session

    return open


@asynccontextmanager
async def async_scoped(db: Database) -> AsyncIterator[Any]:
    async with async_engine(db, "asyncpg") as made:
        factory = sa_async.async_sessionmaker(made)
        session = sa_async.async_scoped_session(factory, scopefunc=lambda: "the one")
        yield session
        await session.remove()


def begin_sqlalchemy(connection: Any) -> Any:
    begun = connection() if callable(connection) else connection  # a scoped session is a registry
    return begun.begin_nested() if begun.in_transaction() else begun.begin()


def execute_text(connection: Any, sql: str) -> Any:
    return connection.execute(sa.text(sql))


# Django

if not django.conf.settings.configured:
    django.conf.settings.configure(
        DATABASES={
            "default": {"ENGINE": "django.db.backends.postgresql"},
            "other": {"ENGINE": "django.db.backends.postgresql"},
        },
        LOGGING_CONFIG=None,
    )
    django.setup()


@contextmanager
def django_connection(db: Database, alias: str = "default") -> Iterator[Any]:
    place = {name.upper(): value for name, value in where(db, "name").items()}
    django.db.connections.settings[alias].update(place)
    yield django.db.connection if alias == "default" else django.db.connections[alias]
    django.db.connections[alias].close()
    del django.db.connections[alias]


def other_django_connection(db: Database) -> Any:
    return django_connection(db, "other")


def begin_django(connection: Any) -> Any:
    return django.db.transaction.atomic(using=connection.alias)


def execute_django(connection: Any, sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


# asyncpg


@asynccontextmanager
async def asyncpg_connection(db: Database) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(**where(db))
    yield connection
    await connection.close()


@asynccontextmanager
async def asyncpg_pooled(db: Database) -> AsyncIterator[Any]:
    pool = asyncpg.create_pool(**where(db), min_size=1, max_size=1)
    async with pool, pool.acquire() as connection:
        yield connection


SQLALCHEMY = (begin_sqlalchemy, execute_text)
DJANGO = (begin_django, execute_django)

LIBRARIES = {
    "psycopg": Library("plain", psycopg_connection, begin, execute),
    "SQLAlchemy Connection": Library("plain", connection_of("psycopg"), *SQLALCHEMY),
    "SQLAlchemy Connection psycopg2": Library("plain", connection_of("psycopg2"), *SQLALCHEMY),
    "SQLAlchemy Session": Library("plain", session_of("psycopg"), *SQLALCHEMY),
    "SQLAlchemy scoped_session": Library("plain", scoped, *SQLALCHEMY),
    "Django connection": Library("plain", django_connection, *DJANGO),
    "Django connections[other]": Library("plain", other_django_connection, *DJANGO),
    "psycopg async": Library("async", async_psycopg_connection, begin, execute),
    "SQLAlchemy AsyncConnection psycopg": Library(
        "async", async_connection_of("psycopg"), *SQLALCHEMY
    ),
    "SQLAlchemy AsyncConnection asyncpg": Library(
        "async", async_connection_of("asyncpg"), *SQLALCHEMY
    ),
    "SQLAlchemy AsyncSession psycopg": Library("async", async_session_of("psycopg"), *SQLALCHEMY),
    "SQLAlchemy AsyncSession asyncpg": Library("async", async_session_of("asyncpg"), *SQLALCHEMY),
    "SQLAlchemy async_scoped_session": Library("async", async_scoped, *SQLALCHEMY),
    "asyncpg": Library("async", asyncpg_connection, begin, execute),
    "asyncpg pooled": Library("async", asyncpg_pooled, begin, execute),
}
