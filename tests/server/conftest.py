"""A real server on the suite's PostgreSQL, and a client for it."""

import os
from collections.abc import Iterator

import httpx
import pytest

from headrace.server.http import connection
from tests.database import Database, Server
from tests.server.running import Running, running

# The other way of bodies and answers, for all tests of the server: HEADRACE_TEST_LONG_WAY=1.
if os.environ.get("HEADRACE_TEST_LONG_WAY"):
    connection.DIRECT = False


@pytest.fixture(scope="module")
def house(server: Server) -> Iterator[Running]:
    """A server for all tests of a module; each has a namespace of its own there."""
    database = Database(server, server.create_database(template=Server.TEMPLATE))
    with running(database) as started:
        yield started
    database.close()
    server.drop_database(database.name)


@pytest.fixture
def api(house: Running) -> Iterator[httpx.Client]:
    """A client that asks in a namespace of its own."""
    with house.client(house.new_namespace()) as client:
        yield client
