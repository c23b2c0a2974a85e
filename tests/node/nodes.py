"""Nodes for tests: started on a test's database, and waited for by what they do."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from headrace import Node
from tests.database import PATIENCE, Database

OUTLASTS = 600
"""A lease for tests that let a minute pass while a node runs. A claim may have read the clock just before it is moved
and find, just after, what has become due: a shorter lease would be over when the claim is made."""


def node(db: Database, node_id: str = "node", **options: Any) -> Node:
    return Node(node_id, **{"dsn": db.dsn, "lease": 30, "idle": 0.5, "grace": 5, **options})


@asynccontextmanager
async def running(*nodes: Node) -> AsyncIterator[None]:
    try:
        for one in nodes:
            await one.start()
        yield
    finally:
        for one in nodes:
            await one.stop()


async def until(condition: Callable[[], Any]) -> None:
    """Wait for what must happen soon."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.005)


async def settled(one: Node) -> None:
    """Wait until a node has nothing at hand, and has said so."""
    service = one._running()
    await until(lambda: not service.finisher.leases)
