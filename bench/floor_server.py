"""The same HTTP server with the least behind it: one INSERT and one commit a request, one DELETE to claim."""

from __future__ import annotations

import asyncio
import signal
import sys

from starlette.responses import Response

from bench.loop import runner
from headrace.server.app import create_app
from headrace.server.claims import Subscription
from headrace.server.directory import open_directory
from headrace.server.operations import Call, Operation, Services, answer
from headrace.server.serving import Server, listen
from headrace.server.wire import NewEventBody
from headrace.statements import Statement

INSERT = "insert into floor (payload) values (%s::jsonb) returning id, created_at::text"
CLAIM = """\
with picked as materialized (select ctid from floor order by id limit 1 for update skip locked)
delete from floor where ctid = any (array(select ctid from picked)) returning id, payload::text"""
OWN = "insert into own (id) values (%s) returning id"


async def insert(call: Call) -> Response:
    body: NewEventBody = call.body
    payload = bytes(body.payload).decode()
    [(id, created_at)] = await call.services.directory.ask(
        Statement(INSERT, (payload,), lambda rows: rows)
    )
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
    [(id, payload)] = await call.services.directory.ask(Statement(CLAIM, (), lambda rows: rows))
    return answer({"id": id, "payload": payload})


async def complete(call: Call) -> Response:
    await call.services.directory.ask(Statement(OWN, (call.event_id,), lambda rows: rows))
    return answer({"event_id": call.event_id})


OPERATIONS = (
    Operation("GET", "/events/subscribe", claim, "consume", Subscription),
    Operation("POST", "/events", insert, "publish", body=NewEventBody),
    Operation("POST", "/events/{id}/complete", complete, "consume", body=dict[str, object]),
)


async def serve(dsn: str) -> None:
    async with open_directory(dsn) as directory:
        services = Services.over(directory)
        server = Server(services, create_app(services, OPERATIONS))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.stop)
        listening = listen("127.0.0.1", 0)
        print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        await server.serve(sockets=[listening])
        listening.close()


if __name__ == "__main__":
    with runner() as loop:
        loop.run(serve(sys.argv[1]))
