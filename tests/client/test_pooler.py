"""A transaction pooler in front: no session belongs to a client for longer than a transaction."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import headrace
from tests.database import Database
from tests.pooler import pgbouncer
from tests.requirements import requirement


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
