"""Settings that a role or a database may have, and what the server does to a connection that rests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import psycopg
import pytest

import headrace
from headrace import (
    AlreadyEnded,
    AsyncEventQueue,
    Completed,
    EventNotFound,
    NamespaceNotFound,
    QueueNotFound,
    ScheduleNotFound,
    TokenNotFound,
)
from headrace.async_client import sessions
from headrace.driver.session_state import RESTED
from tests.client.clients import Client
from tests.client.test_cancelling import CALLS
from tests.database import Database
from tests.requirements import requirement

pytestmark = pytest.mark.one_database("how a client reaches one server")

NOT_THERE = (EventNotFound, NamespaceNotFound, QueueNotFound, ScheduleNotFound, TokenNotFound)
TAGS = ("a\\b", "it's")


@asynccontextmanager
async def connected(db: Database, how: str) -> AsyncIterator[AsyncEventQueue]:
    if how == "own":
        async with db.async_queue() as queue:
            yield queue
    elif how == "own, as behind a pooler":
        async with sessions(db.dsn, 2, prepare=False) as pool:
            yield AsyncEventQueue(pool, prepare=False)
    else:
        connect = psycopg.AsyncConnection.connect
        async with await connect(db.dsn, autocommit=True) as connection:
            yield AsyncEventQueue(connection)


@pytest.mark.anyio
@pytest.mark.parametrize("setting", ["standard_conforming_strings", "array_nulls"])
@pytest.mark.parametrize("how", ["own", "own, as behind a pooler", "the caller's"])
async def test_every_call_works_where_a_setting_is_off(
    db: Database, how: str, setting: str
) -> None:
    if db.server.version >= 19 and setting == "standard_conforming_strings":
        pytest.skip("PostgreSQL 19 has no such strings any more")
    db.sql(f"alter database {db.name} set {setting} = off")
    async with connected(db, how) as queue:
        events = [headrace.NewEvent("a\\b.%_", {"at": "a\\b"}, TAGS) for _ in range(9)]
        ids = await queue.publish_many(events)
        await queue.create_queue("all", types=["a\\b*"])
        assert (await queue.event(ids[0])).tags == TAGS
        for call in CALLS.values():
            await queue.resume()
            with suppress(AlreadyEnded, *NOT_THERE):
                await call(queue, ids[0])
        assert (await queue.publish("a\\b.c")).id
        assert (await queue.queue("all")).types == ("a\\b*",)


@pytest.mark.anyio
async def test_ends_of_which_some_have_a_duration_need_nulls_in_arrays(db: Database) -> None:
    db.sql(f"alter database {db.name} set array_nulls = off")
    async with db.async_queue() as queue:
        await queue.publish_many([("a", {})] * 2)
        first, second = await queue.poll(max_events=2, each=True)
        verdicts = await queue.finish([Completed(first, 5), Completed(second)])
        assert [verdict.verdict for verdict in verdicts] == ["counted", "counted"]


def backends(db: Database) -> list[tuple[int]]:
    return db.sql(
        "select pid from pg_stat_activity where datname = current_database() and application_name = 'headrace'"
    )


@requirement("PG-25")
def test_who_publishes_after_the_server_ended_resting_sessions_does_not_notice(
    db: Database, client: Client
) -> None:
    rest = max(0.2, 2 * RESTED)
    db.sql(f"alter database {db.name} set idle_session_timeout = '{rest}s'")
    queue = client.queue(pool_size=2)
    for _ in range(3):
        before = queue.publish("a").id
        db.wait_for(lambda: backends(db) == [])
        assert queue.publish("a").id > before


@pytest.mark.anyio
async def test_resting_sessions_that_are_all_lost_fail_nobody(db: Database) -> None:
    async with db.async_queue(pool_size=4) as queue:
        await asyncio.gather(*(queue.publish("a") for _ in range(50)))
        for session in [*queue._source._at_hand, *queue._source._pool]:
            session.given_back_at = 0.0  # a while ago
        db.sql(
            "select pg_terminate_backend(pid) from unnest(%s::int[]) pid",
            [[pid for (pid,) in backends(db)]],
        )
        db.wait_for(lambda: backends(db) == [])
        await asyncio.gather(*(queue.publish("a") for _ in range(50)))
    assert db.sql("select count(*) from headrace.events") == [(100,)]
