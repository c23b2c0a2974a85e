"""The same HTTP server with the least behind it, as one would write it: one INSERT and one commit a request through
psycopg's pool, one DELETE to claim."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from psycopg_pool import AsyncConnectionPool
from starlette.responses import Response

from bench.loop import runner
from headrace.server.api.claims.claim import Subscription
from headrace.server.api.shapes import NewEventBody
from headrace.server.clients import open_directory
from headrace.server.http.operation import (
    Call,
    Operation,
    Services,
    answer,
)
from headrace.server.http.routing import create_app
from headrace.server.http.server import Server, listen

CONNECTIONS = 10  # as many as `headrace serve` has
INSERT = "insert into floor (payload) values (%s::jsonb) returning id, created_at"
CLAIM = """\
with picked as materialized (select ctid from floor order by id limit 1 for update skip locked)
delete from floor where ctid = any (array(select ctid from picked)) returning id, payload"""
OWN = "insert into own (id) values (%s) returning id"

Run = Callable[..., Awaitable[Any]]


def operations(run: Run) -> tuple[Operation, ...]:
    async def insert(call: Call) -> Response:
        body: NewEventBody = call.body
        id, created_at = await run(INSERT, bytes(body.payload).decode())
        stored = {
            "id": id,
            "title": body.title,
            "description": body.description,
            "tags": body.tags,
            "status": "PENDING",
            "payload": body.payload,
            "retry_count": 0,
            "max_retries": 3,
            "next_retry_at": None,
            "created_at": created_at,
            "updated_at": created_at,
        }
        return answer(stored, 201)

    async def claim(call: Call) -> Response:
        id, payload = await run(CLAIM)
        return answer({"id": id, "payload": payload})

    async def complete(call: Call) -> Response:
        await run(OWN, call.event_id)
        return answer({"event_id": call.event_id})

    return (
        Operation("GET", "/events/subscribe", claim, "consume", Subscription),
        Operation("POST", "/events", insert, "publish", body=NewEventBody),
        Operation("POST", "/events/{id}/complete", complete, "consume", body=dict[str, object]),
    )


async def serve(dsn: str) -> None:
    options = {"autocommit": True, "prepare_threshold": 0}
    async with (
        open_directory(dsn) as directory,
        AsyncConnectionPool(dsn, kwargs=options, max_size=CONNECTIONS, open=False) as pool,
    ):

        async def run(statement: str, *parameters: Any) -> Any:
            async with pool.connection() as connection:
                return await (await connection.execute(statement, parameters)).fetchone()

        services = Services.over(directory)
        server = Server(services, create_app(services, operations(run)))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.stop)
        listening = listen("127.0.0.1", 0)
        print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        await server.serve(sockets=[listening])
        listening.close()


if __name__ == "__main__":
    with runner() as loop:
        loop.run(serve(sys.argv[1]))
