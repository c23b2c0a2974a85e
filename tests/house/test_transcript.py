"""What Headrace says to PostgreSQL in one scenario, statement by statement and round trip by round trip.

The golden files were written before the code was moved to other modules. A difference is another statement, another parameter
or one more round trip; `HEADRACE_WRITE_TRANSCRIPT=1` has the files written anew, and the difference reviewed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

from tests.client.clients import AsyncClient, Client
from tests.database import Database, Server
from tests.engine.functions_helpers import stop_the_clock
from tests.house import golden
from tests.house.nodes import handle
from tests.house.recording import recorded, written
from tests.house.requests import request
from tests.house.scenario import PUBLIC, Scenario

WRITE = "HEADRACE_WRITE_TRANSCRIPT"
TRIES = 5  # until the machine was quick enough


@contextmanager
def fresh(server: Server) -> Iterator[Database]:
    """A database in which time stands still."""
    db = Database(server, server.create_database(template=Server.TEMPLATE))
    stop_the_clock(db)
    try:
        yield db
    finally:
        db.close()
        server.drop_database(db.name)


@contextmanager
def plain(db: Database) -> Iterator[Client]:
    client = Client(db)
    yield client
    client.close()


@contextmanager
def awaited(db: Database) -> Iterator[Client]:
    with start_blocking_portal("asyncio") as portal:
        client = AsyncClient(db, portal)
        yield client
        client.close()


@pytest.mark.parametrize("opened", [plain, awaited])
def test_a_client_says_the_same_in_as_many_round_trips(
    server: Server, opened: Callable[[Database], Any]
) -> None:
    for _ in range(TRIES):
        with fresh(server) as db, recorded(db) as (through, recorder), opened(through) as client:
            scenario = Scenario(client, recorder)
            scenario.play()
        if scenario.was_prompt:
            break
    assert set(PUBLIC) - scenario.names == set(), "scenario.py calls no such method: add a call"
    assert scenario.names <= set(PUBLIC)
    golden.check(written(scenario.called), "transcript/client.txt", WRITE)


@pytest.mark.anyio
@pytest.mark.timeout(60)
async def test_a_node_says_the_same(db: Database) -> None:
    with recorded(db) as (through, recorder):
        told = await handle(db, through, recorder)
    golden.check(written(told), "transcript/node.txt", WRITE)


def test_the_server_says_the_same(server: Server) -> None:
    with fresh(server) as db, recorded(db) as (through, recorder):
        told = request(db, through, recorder)
    golden.check(written(told), "transcript/server.txt", WRITE)
