"""Headrace: a node whose handlers look at the payload and do nothing more."""

import asyncio
import sys
import time
from typing import Any

import headrace
from bench.loop import runner
from bench.payloads import TYPE, in_batches, payloads
from bench.workers.speaking import closed, said, wait_for_go

DSN = "application_name=bench"  # the rest is in the environment
AT_ONCE = 16  # transactions


def fill(events: int) -> None:
    with headrace.connect(DSN) as queue:
        for batch in in_batches(payloads(events)):
            queue.publish_many([(TYPE, payload) for payload in batch])


def node(how: str) -> headrace.Node:
    made = headrace.Node(dsn=DSN, concurrency=100, connections=AT_ONCE)
    seen = False

    def look(event: headrace.Claimed) -> None:
        nonlocal seen
        if not seen:
            seen = True
            said("first", time.monotonic())
        event.payload["order"]

    if how == "plain":
        made.on_event("*")(look)
    elif how == "transactional":

        @made.on_event("*")
        async def write(event: headrace.Claimed, connection: Any) -> None:
            look(event)
            await connection.execute("insert into own (id) values (%s)", (event.id,))

    elif how == "latency":

        @made.on_event("*")
        async def tell(event: headrace.Claimed) -> None:
            said("seen", time.monotonic())

    else:

        @made.on_event("*")
        async def handle(event: headrace.Claimed) -> None:
            look(event)

    return made


async def work(how: str) -> None:
    made = node(how)
    await asyncio.to_thread(wait_for_go)
    async with made:
        said("started", time.monotonic())
        await asyncio.to_thread(closed)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["fill", events]:
            fill(int(events))
        case ["work", how]:
            with runner() as loop:
                loop.run(work(how))
