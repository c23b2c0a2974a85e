"""What a request holds while it waits is free again when the request is cancelled, wherever that is."""

import asyncio

import pytest

from headrace.engine.publish import max_payload
from headrace.server.clients import open_directory
from headrace.server.long_poll import (
    LOOKING,
    NoWakeups,
    Waiting,
    WaitTime,
)
from tests.cancelling import PATIENCE, cancel_everywhere
from tests.database import Database


@pytest.mark.anyio
async def test_a_long_poll_may_be_cancelled_at_every_await() -> None:
    waiting = Waiting(NoWakeups(), asyncio.Event())
    turns_free = asyncio.Event()

    async def until_found(found: asyncio.Event) -> list[int]:
        async def look() -> list[int]:
            await asyncio.sleep(0)
            return [1] if found.is_set() else []

        where = {"namespace": "default", "queue": "main", "filter": ()}
        return await waiting.until_found(look, WaitTime(PATIENCE), **where)

    async def call() -> None:
        """Wait behind others that have all the turns, then for something to be found."""
        turns_free.clear()
        others = [asyncio.create_task(until_found(turns_free)) for _ in range(LOOKING)]
        mine = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.call_later(0.03, turns_free.set)
        loop.call_later(0.06, mine.set)
        try:
            await asyncio.sleep(0)
            assert await until_found(mine) == [1]
        finally:
            turns_free.set()
            behind.extend(others)

    async def check(told: str) -> None:
        await asyncio.gather(*behind)
        behind.clear()
        assert waiting._turns == {}, told

    behind: list[asyncio.Task[list[int]]] = []
    assert await cancel_everywhere(call, check) > LOOKING


@pytest.mark.anyio
async def test_a_question_of_the_server_may_be_cancelled_at_every_await(db: Database) -> None:
    async with open_directory(db.dsn, connections=1) as directory:

        async def call() -> int:
            return await directory.ask(max_payload())

        async def check(told: str) -> None:
            assert await call() > 0

        assert await cancel_everywhere(call, check) > 0
        assert directory.pools["work"].replaced == 0
