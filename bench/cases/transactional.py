"""Sixteen handlers at once, each in a transaction: an insert of its own, and the event's end."""

import asyncio

import psycopg

import headrace
from bench import peers
from bench.cases import drain
from bench.measure import Contender, Watch
from bench.payloads import decode

AT_ONCE = 16
OWN = "insert into own (id) values (%s)"

AsyncConnection = psycopg.AsyncConnection[tuple[object, ...]]


def contenders(dsn: str) -> list[Contender]:
    return [Ours(dsn), Floor(dsn)]


async def open_connections(dsn: str) -> list[AsyncConnection]:
    return [
        await psycopg.AsyncConnection.connect(dsn, autocommit=True, prepare_threshold=0)
        for _ in range(AT_ONCE)
    ]


class Ours(drain.Ours):
    tables = ("headrace.ready", "headrace.leases", "headrace.held", "headrace.counts")

    async def connect(self) -> None:
        await super().connect()
        self.connections = await open_connections(self.dsn)

    async def drain(self, events: int, watch: Watch) -> None:
        claimed: asyncio.Queue[headrace.Claimed | None] = asyncio.Queue(maxsize=4 * AT_ONCE)

        async def claims() -> None:
            missing = events
            while missing:
                for event in await self.queue.poll(max_events=4 * AT_ONCE, each=True):
                    await claimed.put(event)
                    missing -= 1
            for _ in range(AT_ONCE):
                await claimed.put(None)

        async def works(connection: AsyncConnection) -> None:
            while (event := await claimed.get()) is not None:
                watch.start()
                async with connection.transaction():
                    await drain.handle(event.payload)
                    await connection.execute(OWN, (event.id,))
                    await self.queue.complete(event, connection=connection)

        async with asyncio.TaskGroup() as group:
            group.create_task(claims())
            for connection in self.connections:
                group.create_task(works(connection))

    async def disconnect(self) -> None:
        for connection in self.connections:
            await connection.close()
        await super().disconnect()


class Floor(drain.Floor):
    claim = peers.FLOOR_CLAIM.format(limit=1)

    async def connect(self) -> None:
        self.connections = await open_connections(self.dsn)

    async def drain(self, events: int, watch: Watch) -> None:
        missing = events

        async def works(connection: AsyncConnection) -> None:
            nonlocal missing
            while missing > 0:
                missing -= 1
                watch.start()
                async with connection.transaction():
                    row = await (await connection.execute(self.claim)).fetchone()
                    assert row is not None
                    await drain.handle(decode(str(row[1])))
                    await connection.execute(OWN, (row[0],))

        async with asyncio.TaskGroup() as group:
            for connection in self.connections:
                group.create_task(works(connection))

    async def disconnect(self) -> None:
        for connection in self.connections:
            await connection.close()
