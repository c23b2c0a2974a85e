"""A transaction pooler in front: no session belongs to a client for longer than a transaction."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psycopg
import pytest

import headrace
from headrace.driver.session import Session
from tests.client.clients import Client
from tests.database import Database
from tests.pooler import pgbouncer
from tests.requirements import requirement

pytestmark = pytest.mark.one_database("how a client reaches one server")


@pytest.fixture
def pooled(db: Database) -> Iterator[str]:
    """The DSN of the test's database behind a PgBouncer with two connections."""
    with pgbouncer(db) as dsn:
        yield dsn


@requirement("G19")
def test_clients_share_sessions_behind_a_transaction_pooler(pooled: str, db: Database) -> None:
    def work(number: int) -> int:
        done = 0
        with headrace.connect(pooled, prepare=False, pool_size=2, worker=f"w{number}") as queue:
            queue.publish_many([("a", {"n": n}) for n in range(1_200)])
            while claimed := queue.poll(max_events=100, each=number % 2 == 0):
                queue.extend(claimed)
                queue.complete(claimed)
                done += len(claimed)
            queue.stats(), queue.tick(), queue.log(1)
        return done

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(work, range(4))) == 4_800
    assert set(map(tuple, db.placement().values())) == {("outcome",)}


def test_a_transaction_of_the_callers_works_behind_a_transaction_pooler(
    pooled: str, db: Database
) -> None:
    with (
        headrace.connect(pooled, prepare=False) as queue,
        psycopg.connect(pooled, prepare_threshold=None) as connection,
    ):
        queue.publish("a", connection=connection)
        queue.publish_many([("a", {})] * 1_500, connection=connection)
        assert db.placement() == {}
        connection.rollback()
        queue.publish("a", connection=connection)
        connection.commit()
        (claimed,) = queue.poll(each=True)
        queue.complete(claimed, connection=connection)
        connection.commit()
    assert list(db.placement().values()) == [["outcome"]]


def test_sessions_that_a_pooler_mixes_up_run_their_own_statements(
    pooled: str, db: Database
) -> None:
    """They prepare all the same, as where no pooler is noticed: each finds its own statement, or none."""
    ids = db.queue().publish_many([("a", {})] * 40)
    expected = {"reset": "PENDING", "cancel": "CANCELLED"}

    def work(number: int) -> None:
        name = "cancel" if number % 2 else "reset"
        mine = ids[number::4]
        with Session.connect(pooled, autocommit=True, prepare_threshold=0) as session:
            queue = headrace.EventQueue(session)
            for id in mine:
                # Each session has another number of statements before this one.
                [queue.stats, queue.queues, queue.low_water, queue.schedules][number]()
                assert getattr(queue, name)(id).id == id
        for id in mine:
            assert db.queue().event(id).status == expected[name]

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))


def test_a_handlers_statements_have_names_of_their_own(pooled: str) -> None:
    """Psycopg numbers what it prepares, and a number of one session is another statement in the next."""
    with (
        Session.connect(pooled, autocommit=True, prepare_threshold=0) as one,
        Session.connect(pooled, autocommit=True, prepare_threshold=0) as other,
    ):
        for n in range(20):
            assert one.execute("select %s::int + 1", [n]).fetchone() == (n + 1,)
            with suppress(psycopg.errors.InvalidSqlStatementName):
                assert other.execute("select %s::int - 1", [n]).fetchone() == (n - 1,)


@requirement("G19")
def test_a_transaction_pooler_is_noticed_and_said_once(
    pooled: str, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    clients = [
        client.queue_at(pooled, pool_size=2, worker=f"w{n}") for n in range(3)
    ]  # more than there are sessions
    for queue in clients:
        ids = queue.publish_many([("a", {})] * 300)
        assert len(queue.poll(max_events=300)) == len(ids)
        queue.stats(), queue.queues()
    assert [record.name for record in caplog.records] == ["headrace"] * 3
    assert "behind a transaction pooler" in caplog.records[0].message


def test_a_session_pooler_is_nothing_special(
    db: Database, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with pgbouncer(db, "session") as dsn:
        queue = client.queue_at(dsn, pool_size=1)
        assert queue.publish("a").id
        assert client.unwrapped(queue)._prepare
        client.close()
    assert caplog.records == []


def test_a_pooler_that_has_no_second_session_to_give_is_not_waited_for(db: Database) -> None:
    with pgbouncer(db, "session") as dsn, psycopg.connect(dsn), psycopg.connect(dsn) as last:
        last.close()
        with headrace.connect(dsn, pool_size=1) as queue:
            assert queue.publish("a").id
