"""Which connections are taken, what is said of others, and how each library is entered."""

import json
import subprocess
import sys
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

import headrace
from headrace import AsyncEventQueue, EventQueue, InvalidInput
from tests.client import callers
from tests.client.callers import LIBRARIES, Library, asyncpg, django, sa
from tests.client.clients import AsyncClient, Client
from tests.database import Database
from tests.requirements import requirement

pytestmark = pytest.mark.one_database("connections of other libraries go to their own database")


def count(db: Database) -> int:
    return db.sql("select count(*) from headrace.events")[0][0]


@pytest.fixture
def awaiting(db: Database) -> Any:
    """A client for asyncio, whose methods tests call plainly."""
    with start_blocking_portal("asyncio") as portal:
        client = AsyncClient(db, portal)
        yield client
        client.close()


@pytest.fixture
def plain(db: Database) -> Any:
    client = Client(db)
    yield client
    client.close()


def of_kind(kind: str) -> list[Library]:
    return [library for library in LIBRARIES.values() if library.client == kind]


def test_a_plain_client_says_that_it_cannot_await(db: Database, awaiting: AsyncClient) -> None:
    refused = pytest.raises(InvalidInput, match=r"cannot await a .*: use an AsyncEventQueue")
    for library in of_kind("async"):
        with awaiting.within(library.open(db)) as connection, refused:
            db.queue().publish("a", connection=connection)


def test_an_async_client_says_that_it_would_block(db: Database, awaiting: AsyncClient) -> None:
    refused = pytest.raises(InvalidInput, match=r"block its loop .*: use an EventQueue")
    for library in of_kind("plain"):
        with library.open(db) as connection, refused:
            awaiting.queue().publish("a", connection=connection)


@pytest.mark.parametrize("client", ["plain", "awaiting"])
def test_what_is_no_connection_is_answered_with_what_is(
    request: pytest.FixtureRequest, client: str
) -> None:
    queue = request.getfixturevalue(client).queue()
    for other in (object(), "postgresql://", sa.create_engine("sqlite://")):
        with pytest.raises(InvalidInput, match=r"psycopg\..*SQLAlchemy.*(Django|asyncpg), not on"):
            queue.publish("a", connection=other)


def test_a_connection_to_another_database_system_is_refused(plain: Client) -> None:
    sqlite = django.db.utils.load_backend("django.db.backends.sqlite3")
    wrapper = sqlite.DatabaseWrapper({"NAME": ":memory:"}, "sqlite")
    with sa.create_engine("sqlite://").connect() as connection:
        for other in (connection, wrapper):
            with pytest.raises(
                InvalidInput, match=r"needs a connection to PostgreSQL, .* to sqlite"
            ):
                plain.queue().publish("a", connection=other)


def test_a_driver_whose_errors_we_cannot_read_is_refused(db: Database) -> None:
    with callers.engine(db, "psycopg") as engine, engine.connect() as connection:
        engine.dialect.driver = "pg8000"
        with pytest.raises(InvalidInput, match=r"drivers psycopg, psycopg2, asyncpg, not pg8000"):
            db.queue().publish("a", connection=connection)


NOTHING_ELSE = """
import sys
import headrace

with headrace.connect(sys.argv[1]) as queue:
    queue.publish("a")
    try:
        queue.publish("a", connection=object())
    except headrace.InvalidInput:
        print(*sys.modules)
"""


def test_no_library_is_imported_that_the_caller_has_not(db: Database) -> None:
    run = [sys.executable, "-c", NOTHING_ELSE, db.dsn]
    modules = set(subprocess.check_output(run, text=True).split())
    assert "headrace.driver.others" in modules
    assert modules & {"sqlalchemy", "django", "asyncpg", "greenlet"} == set()


ALONE = {
    "SQLAlchemy": Library(
        "plain",
        callers.connection_of("psycopg", isolation_level="AUTOCOMMIT"),
        *callers.SQLALCHEMY,
    ),
    "SQLAlchemy psycopg2": Library(
        "plain",
        callers.connection_of("psycopg2", isolation_level="AUTOCOMMIT"),
        *callers.SQLALCHEMY,
    ),
    "SQLAlchemy asyncpg": Library(
        "async",
        callers.async_connection_of("asyncpg", isolation_level="AUTOCOMMIT"),
        *callers.SQLALCHEMY,
    ),
    "SQLAlchemy psycopg async": Library(
        "async",
        callers.async_connection_of("psycopg", isolation_level="AUTOCOMMIT"),
        *callers.SQLALCHEMY,
    ),
    "Django": LIBRARIES["Django connection"],
    "asyncpg": LIBRARIES["asyncpg"],
    "asyncpg pooled": LIBRARIES["asyncpg pooled"],
}


@pytest.mark.parametrize("library", ALONE.values(), ids=ALONE)
def test_many_events_are_one_transaction_on_a_connection_that_has_none(
    request: pytest.FixtureRequest, db: Database, library: Library
) -> None:
    client = request.getfixturevalue("plain" if library.client == "plain" else "awaiting")
    queue, events = client.queue(), [("a", {})] * 1_500
    with client.within(library.open(db)) as connection:
        with pytest.raises(InvalidInput) as raised:
            queue.publish_many([*events, ("a,b", {})], connection=connection)
        assert raised.value.position == 1_500
        assert count(db) == 0
        queue.publish_many(events, connection=connection)
        assert count(db) == 1_500
        queue.publish("a", connection=connection)
        assert count(db) == 1_501
    assert db.sql("select count(distinct xmin::text) from headrace.events") == [(2,)]


@requirement("G3")
@pytest.mark.parametrize("library", ALONE.values(), ids=ALONE)
def test_many_events_join_a_transaction_that_the_library_does_not_know_of(
    request: pytest.FixtureRequest, db: Database, library: Library
) -> None:
    client = request.getfixturevalue("plain" if library.client == "plain" else "awaiting")
    queue = client.queue()
    with client.within(library.open(db)) as connection:
        client.call(library.execute, connection, "begin")
        queue.publish_many([("a", {})] * 1_500, connection=connection)
        assert count(db) == 0
        client.call(library.execute, connection, "rollback")
    assert count(db) == 0


@requirement("G3")
def test_sqlalchemy_begins_by_itself_and_only_its_user_commits(db: Database) -> None:
    queue = db.queue()
    with callers.engine(db, "psycopg") as engine:
        with engine.connect() as connection:
            queue.publish("a", connection=connection)
            assert connection.in_transaction()
        assert count(db) == 0
        with engine.connect() as connection:
            queue.publish("a", connection=connection)
            connection.commit()
    assert count(db) == 1


def test_sqlalchemy_and_django_see_our_statements_like_any_other(db: Database) -> None:
    queue, seen = db.queue(), []
    with callers.engine(db, "psycopg") as engine, engine.begin() as connection:
        sa.event.listen(engine, "before_cursor_execute", lambda *event: seen.append(event[2]))
        queue.publish("a", connection=connection)
    assert len(seen) == 1
    assert "headrace.publish" in seen[0]
    captured = django.test.utils.CaptureQueriesContext
    with callers.django_connection(db) as connection, captured(connection) as queries:
        queue.publish("a", connection=connection)
        assert [query["sql"].count("headrace.publish") for query in queries] == [1]


def test_a_transaction_that_sqlalchemy_has_closed_is_not_joined(db: Database) -> None:
    queue = db.queue()

    def publish_after_a_rollback(connection: Any) -> None:
        with connection.begin() as transaction:
            transaction.rollback()
            queue.publish("a", connection=connection)

    with (
        callers.engine(db, "psycopg") as engine,
        engine.connect() as connection,
        pytest.raises(sa.exc.InvalidRequestError),
    ):
        publish_after_a_rollback(connection)
    assert count(db) == 0


def test_a_plain_session_inside_an_async_one_is_joined_too(
    db: Database, awaiting: AsyncClient
) -> None:
    async def publish() -> None:
        async with callers.async_session_of("asyncpg")(db) as session, session.begin():
            await session.run_sync(lambda plain: EventQueue(plain).publish("a"))

    awaiting.call(publish)
    assert count(db) == 1


def test_codecs_of_the_callers_do_not_matter_to_asyncpg(
    db: Database, awaiting: AsyncClient
) -> None:
    async def publish_and_complete() -> str:
        async with callers.asyncpg_connection(db) as connection:
            for name in ("json", "jsonb"):
                await connection.set_type_codec(
                    name, encoder=json.dumps, decoder=json.loads, schema="pg_catalog"
                )
            queue = AsyncEventQueue(connection)
            event = await queue.publish("a", {"n": 1}, tags=["x"])
            (claimed,) = await queue.poll(each=True)
            assert claimed.payload == {"n": 1}
            await queue.fail(claimed, "broken", reason="It is hopeless")
            return (await queue.event(event.id)).status

    assert awaiting.call(publish_and_complete) == "FAILED"


class Standing:
    """A proxy as frameworks have them: it says that it is what it stands for."""

    def __init__(self, target: Any) -> None:
        self._target = target

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self._target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


def test_a_proxy_is_taken_for_what_it_stands_for(db: Database) -> None:
    queue = db.queue()
    with callers.session_of("psycopg")(db) as session, session.begin():
        queue.publish("a", connection=Standing(session))
    assert count(db) == 1


def test_errors_that_are_not_ours_pass_as_the_librarys(
    db: Database, plain: Client, awaiting: AsyncClient
) -> None:
    broken = {
        "SQLAlchemy Session": sa.exc.DBAPIError,
        "Django connection": django.db.Error,
        "SQLAlchemy AsyncSession asyncpg": sa.exc.DBAPIError,
        "asyncpg": asyncpg.InFailedSQLTransactionError,
    }
    for name, error in broken.items():
        library = LIBRARIES[name]
        client = plain if library.client == "plain" else awaiting
        queue = client.queue()
        with client.within(library.open(db)) as connection:
            caller = callers.Caller(library, client, connection)
            with caller.rolled_back():
                with pytest.raises(headrace.NamespaceNotFound):
                    client.queue_on(connection, namespace="nowhere").publish("a")
                with pytest.raises(error):
                    queue.publish("a", connection=connection)
