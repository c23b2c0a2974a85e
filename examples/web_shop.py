"""A web application that publishes in its own transactions, with a worker in the same process.

pip install fastapi uvicorn
HEADRACE_DSN=postgresql://… uvicorn web_shop:app        # in this folder
curl -X POST 'http://127.0.0.1:8000/orders?item=nails'
curl 'http://127.0.0.1:8000/orders/1'
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException
from psycopg_pool import AsyncConnectionPool

import headrace

DSN = os.environ["HEADRACE_DSN"]
TABLE = """
create table if not exists orders (
    id bigint generated always as identity primary key, item text not null, state text not null default 'placed')
"""

node = headrace.Node("web-shop", dsn=DSN, migrate=True, grace=5)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Your own pool, for your own tables, and Headrace's client and node beside it, on one database."""
    async with (
        node,
        headrace.connect_async(DSN) as app.state.queue,
        AsyncConnectionPool(DSN, open=False) as app.state.pool,
    ):
        async with app.state.pool.connection() as connection:
            await connection.execute(TABLE)
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=201)
async def place(item: str) -> dict[str, int]:
    """The row and the event about it are one transaction: both are there when this has answered, or neither."""
    async with app.state.pool.connection() as connection:
        cursor = await connection.execute(
            "insert into orders (item) values (%s) returning id", [item]
        )
        (number,) = await cursor.fetchone()
        await app.state.queue.publish("order.placed", {"order": number}, connection=connection)
    return {"order": number}


@app.get("/orders/{number}")
async def show(number: int) -> dict[str, Any]:
    async with app.state.pool.connection() as connection:
        cursor = await connection.execute("select item, state from orders where id = %s", [number])
        row = await cursor.fetchone()
    if row is None:
        raise HTTPException(404, "there is no such order")
    return {"order": number, "item": row[0], "state": row[1]}


@node.on_event("order.placed", max_retries=5)
async def ship(event: headrace.Claimed, connection: Any) -> None:
    """Asks for the connection: that the order is sent and that the event is done are one transaction."""
    await connection.execute(
        "update orders set state = 'sent' where id = %s", [event.payload["order"]]
    )
