from collections.abc import Iterator
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

import headrace
from tests.client.clients import AsyncClient, Client
from tests.database import Database, Server


@pytest.fixture(params=["plain", "async"])
def client(request: pytest.FixtureRequest, db: Database) -> Iterator[Client]:
    if request.param == "plain":
        client = Client(db)
        yield client
        client.close()
    else:
        with start_blocking_portal("asyncio") as portal:
            client = AsyncClient(db, portal)
            yield client
            client.close()


@pytest.fixture
def queue(client: Client) -> Any:
    """An EventQueue, or an AsyncEventQueue that awaits by itself."""
    return client.queue()


@pytest.fixture(scope="module")
def shared(server: Server) -> Iterator[Database]:
    """One database for a module's many small questions that leave nothing behind."""
    database = Database(server, server.create_database(template=Server.TEMPLATE))
    yield database
    database.close()
    server.drop_database(database.name)


@pytest.fixture(scope="module")
def asked(shared: Database) -> headrace.EventQueue:
    return shared.queue()
