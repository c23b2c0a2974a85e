import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import headrace
from headrace import EventQueue, LeaseLost
from tests.client.clients import Client
from tests.database import Database
from tests.requirements import requirement

BACKENDS = "from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"


@requirement("EQ-3", "EB-2", "G5")
def test_threads_share_a_client_and_each_event_goes_to_one_of_them(db: Database) -> None:
    queue = db.queue(pool_size=4)
    ids = queue.publish_many([("a", {"n": n}) for n in range(2_000)])

    def drain(number: int) -> list[int]:
        done = []
        while claimed := queue.poll(max_events=50, each=number % 2 == 0):
            queue.complete(claimed)
            done += [one.id for one in claimed]
        return done

    with ThreadPoolExecutor(4) as threads:
        seen = Counter(id for done in threads.map(drain, range(4)) for id in done)
    assert seen == Counter(ids)


@pytest.mark.anyio
async def test_tasks_share_a_client_and_each_event_goes_to_one_of_them(db: Database) -> None:
    async with db.async_queue(pool_size=4) as queue:
        ids = await queue.publish_many([("a", {"n": n}) for n in range(1_000)])
        seen: Counter[int] = Counter()

        async def drain() -> None:
            while claimed := await queue.poll(max_events=50):
                await queue.complete(claimed)
                seen.update(one.id for one in claimed)

        await asyncio.gather(*(drain() for _ in range(6)))
        assert seen == Counter(ids)


@pytest.mark.one_database("a transaction is one database's")
@pytest.mark.anyio
async def test_a_call_that_is_cancelled_leaves_the_client_as_it_was(db: Database) -> None:
    async with db.async_queue(pool_size=1) as queue:
        event = await queue.publish("a")
        (claimed,) = await queue.poll(each=True)
        other = db.connect(autocommit=False)
        other.execute("select from headrace.held for update")
        waiting = asyncio.create_task(queue.complete(claimed))
        ((pid,),) = db.sql(f"select pid {BACKENDS} and application_name = 'headrace'")
        await asyncio.to_thread(db.wait_until_blocked, pid)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        other.rollback()
        assert (await queue.event(event.id)).status == "PROCESSING"
        await queue.complete(claimed)


def test_a_client_goes_on_after_its_connections_were_cut(client: Client, db: Database) -> None:
    queue = client.queue(pool_size=2)
    event = queue.publish("a")
    db.sql(f"select pg_terminate_backend(pid) {BACKENDS}")
    for _ in range(3):  # at most an error for each connection that was cut
        try:
            claimed = queue.poll()
            break
        except psycopg.OperationalError:
            continue
    assert [one.id for one in claimed] == [event.id]


@pytest.mark.one_database("a transaction is one database's")
@requirement("G6", "G7")
def test_of_two_finishes_at_once_one_counts(db: Database) -> None:
    queue = db.queue()
    queue.publish("a")
    (claimed,) = queue.poll(each=True)
    first, second = db.connect(autocommit=False), db.connect()
    queue.complete(claimed, connection=first)

    def fail() -> Any:
        return EventQueue(second).finish([headrace.Failed(claimed, "too late")])

    with ThreadPoolExecutor(1) as threads:
        late = threads.submit(fail)
        db.wait_until_blocked(second)
        first.commit()
        (verdict,) = late.result()
    assert (verdict.verdict, verdict.action) == ("conflict", "COMPLETED")


@pytest.mark.one_database("a transaction is one database's")
def test_a_finish_that_waited_for_a_rollback_counts(db: Database) -> None:
    queue = db.queue()
    event = queue.publish("a")
    (claimed,) = queue.poll(each=True)
    first, second = db.connect(autocommit=False), db.connect()
    queue.complete(claimed, connection=first)
    with ThreadPoolExecutor(1) as threads:
        late = threads.submit(lambda: EventQueue(second).fail(claimed, "broken"))
        db.wait_until_blocked(second)
        first.rollback()
        assert late.result().verdict == "counted"
    assert db.placement() == {event.id: ["delayed"]}


@pytest.mark.one_database("a transaction is one database's")
@requirement("G10")
def test_resolve_waits_for_a_commit_that_is_under_way(db: Database) -> None:
    queue = db.queue()
    queue.publish("a")
    (claimed,) = queue.poll(each=True)
    first, second = db.connect(autocommit=False), db.connect()
    queue.complete(claimed, connection=first)
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(lambda: EventQueue(second).resolve(claimed))
        db.wait_until_blocked(second)
        first.commit()
        assert asked.result() == "COMPLETED"


@pytest.mark.one_database("a transaction is one database's")
def test_a_held_claim_is_finished_at_any_isolation_level(db: Database) -> None:
    queue = db.queue()
    for level in psycopg.IsolationLevel:
        queue.publish("a")
        (claimed,) = queue.poll(each=True)
        connection = db.connect(autocommit=False)
        connection.isolation_level = level
        queue.complete(claimed, connection=connection)
        connection.commit()
        queue.complete(claimed, connection=connection)
        connection.rollback()
        with pytest.raises(LeaseLost):
            queue.complete(headrace.Claim(claimed.id, 2), connection=connection)
        connection.rollback()
