"""Drain a queue with one process: every payload decoded, a coroutine awaited for every event.

Time runs from the first handler to the reply that ends the last event. Ours and pgmq claim on one
connection while they finish on another; for the floor a claim is the end, so there is nothing to
overlap.
"""

from typing import Any

import psycopg

import headrace
from bench import peers
from bench.cases import bulk
from bench.cases.pipeline import overlap
from bench.loop import runner
from bench.measure import Contender, Watch
from bench.payloads import BATCH, Payload, decode, in_batches, payloads


def contenders(dsn: str) -> list[Contender]:
    return [
        Ours(dsn),
        Floor(dsn),
        *([AsyncpgFloor(dsn)] if peers.has_asyncpg() else []),
        *([Pgmq(dsn)] if peers.has_pgmq() else []),
    ]


async def handle(payload: Payload) -> None:
    """Does nothing, but for a look at the payload."""
    payload["order"]


class Drain(Contender):
    """Fills its queue through `publisher`; what is left after a turn must be nothing."""

    publisher: type[bulk.Bulk]
    unfinished: str

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.published = self.publisher(dsn)
        self.runner = runner()
        self.runner.run(self.connect())

    def prepare(self, events: int) -> None:
        for batch in in_batches(payloads(events)):
            self.published.publish(batch)

    def run(self, events: int, watch: Watch) -> None:
        self.runner.run(self.drain(events, watch))
        watch.stop()
        left = self.admin.execute(self.unfinished).fetchone()
        if left != (0,):
            raise RuntimeError(f"{self.name}: the queue is not empty after its drain: {left}")

    def close(self) -> None:
        self.runner.run(self.disconnect())
        self.runner.close()
        self.published.close()
        super().close()

    async def connect(self) -> None:
        raise NotImplementedError

    async def drain(self, events: int, watch: Watch) -> None:
        raise NotImplementedError

    async def disconnect(self) -> None:
        raise NotImplementedError


class Ours(Drain):
    name = "headrace"
    tables = ("headrace.ready", "headrace.leases", "headrace.counts")
    publisher = bulk.Ours
    unfinished = """
        select (select count(*) from headrace.ready) + (select count(*) from headrace.delayed)
             + (select count(*) from headrace.held)
             + (select count(*) from headrace.leases where events is not null)"""

    async def connect(self) -> None:
        self.queue = await headrace.connect_async(self.dsn)

    async def drain(self, events: int, watch: Watch) -> None:
        queue = self.queue

        async def work(batch: list[headrace.Claimed]) -> None:
            watch.start()
            for event in batch:
                await handle(event.payload)

        await overlap(events, lambda: queue.poll(max_events=BATCH), work, queue.complete)

    async def disconnect(self) -> None:
        await self.queue.close()


class Floor(Drain):
    name = "floor"
    tables = ("floor",)
    publisher = bulk.Floor
    unfinished = "select count(*) from floor"
    claim = peers.FLOOR_CLAIM.format(limit=BATCH)

    async def connect(self) -> None:
        self.connection = await psycopg.AsyncConnection.connect(
            self.dsn, autocommit=True, prepare_threshold=0
        )

    async def drain(self, events: int, watch: Watch) -> None:
        while events > 0:
            cursor = psycopg.AsyncCursor(self.connection)
            rows = await (await cursor.execute(self.claim, binary=True)).fetchall()
            watch.start()
            for _, payload in rows:
                await handle(decode(payload))
            events -= len(rows)

    async def disconnect(self) -> None:
        await self.connection.close()


class AsyncpgFloor(Floor):
    """The same through another driver, which is the faster one."""

    name = "floor (asyncpg)"

    async def connect(self) -> None:
        import asyncpg

        self.other: Any = await asyncpg.connect(self.dsn_of_asyncpg())

    def dsn_of_asyncpg(self) -> str:
        info = psycopg.conninfo.conninfo_to_dict(self.dsn)
        host, database = info.pop("host", ""), info.pop("dbname", "")
        user, port = info.pop("user", ""), info.pop("port", "5432")
        return f"postgresql:///{database}?host={host}&port={port}" + (
            f"&user={user}" if user else ""
        )

    async def drain(self, events: int, watch: Watch) -> None:
        while events > 0:
            rows = await self.other.fetch(self.claim)
            watch.start()
            for row in rows:
                await handle(decode(row[1]))
            events -= len(rows)

    async def disconnect(self) -> None:
        await self.other.close()


class Pgmq(Drain):
    name = "pgmq"
    tables = ("pgmq.q_bench",)
    publisher = bulk.Pgmq
    unfinished = "select count(*) from pgmq.q_bench"

    async def connect(self) -> None:
        self.claiming, self.finishing = [
            await psycopg.AsyncConnection.connect(self.dsn, autocommit=True, prepare_threshold=0)
            for _ in range(2)
        ]

    async def drain(self, events: int, watch: Watch) -> None:
        async def claim() -> list[tuple[int, Payload]]:
            cursor = await psycopg.AsyncCursor(self.claiming).execute(
                "select msg_id, message::text from pgmq.read('bench', 60, %s)",
                (BATCH,),
                binary=True,
            )
            return [(id, decode(payload)) for id, payload in await cursor.fetchall()]

        async def work(batch: list[tuple[int, Payload]]) -> None:
            watch.start()
            for _, payload in batch:
                await handle(payload)

        async def finish(batch: list[tuple[int, Payload]]) -> None:
            ids = f"{{{','.join([str(id) for id, _ in batch])}}}"
            await self.finishing.execute(
                "select count(*) from pgmq.delete('bench', %s::bigint[])", (ids,)
            )

        await overlap(events, claim, work, finish)

    async def disconnect(self) -> None:
        await self.claiming.close()
        await self.finishing.close()
