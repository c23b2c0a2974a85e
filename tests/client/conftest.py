"""Both clients, in turn; over one database, or over as many shards as HEADRACE_TEST_SHARDS says."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import pytest
from anyio.from_thread import start_blocking_portal

import headrace
from tests.client import shards
from tests.client.clients import AsyncClient, Client
from tests.database import Database, Server

HERE = Path(__file__).parent
KINDS = ("plain", "async")


ONE_DATABASE = "one_database"  # the mark of what is about one database, with the reason


@pytest.fixture
def db(request: pytest.FixtureRequest, server: Server) -> Iterator[Database]:
    """A database, or several shards."""
    if shards.COUNT == 1:
        yield request.getfixturevalue("one_db")
        return
    databases = shards.Shards(server)
    yield databases
    databases.close()


@pytest.hookimpl(tryfirst=True)  # before any are deselected
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is written once for both clients, which differ in how they wait and in nothing else, `make test` does with one of
    them, by turns, and `make test-all` with the other."""
    if shards.COUNT > 1:
        alone = [one for one in items if one.get_closest_marker(ONE_DATABASE)]
        config.hook.pytest_deselected(items=alone)
        items[:] = [one for one in items if one not in alone]
    for item in items:
        kind = getattr(item, "callspec", SimpleNamespace(params={})).params.get("client")
        if kind in KINDS and HERE in item.path.parents:
            turn = crc32(item.nodeid.partition("[")[0].encode()) % len(KINDS)
            if kind != KINDS[turn]:
                item.add_marker(pytest.mark.rest)


@pytest.fixture(params=KINDS)
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
    if shards.COUNT > 1:
        several = shards.Shards(server)
        yield several
        several.close()
        return
    database = Database(server, server.create_database(template=Server.TEMPLATE))
    yield database
    database.close()
    server.drop_database(database.name)


@pytest.fixture(scope="module")
def asked(shared: Database) -> headrace.EventQueue:
    return shared.queue()
