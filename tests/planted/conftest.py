"""Everything in this folder runs in databases where `public` is full of traps, and comes first."""

from collections.abc import Iterator

import psycopg
import pytest

from headrace.install.migrate import migrate
from headrace.testing.database import MOVABLE_CLOCK
from tests.cli.conftest import cli as cli
from tests.client.conftest import client as client
from tests.client.conftest import queue as queue
from tests.database import Server
from tests.node.conftest import _time_to_tell as _time_to_tell
from tests.planted.planting import PlantedDatabase, plant


@pytest.fixture(scope="session")
def planted(server: Server) -> str:
    """The template: traps, and no Headrace."""
    name = server.create_database()
    plant(server.dsn_of(name))
    return name


@pytest.fixture(scope="session")
def planted_before_headrace(server: Server, planted: str) -> str:
    name = _copy(server, planted)
    with psycopg.connect(server.dsn_of(name), autocommit=True) as connection:
        migrate(connection)
        connection.execute("set search_path = pg_catalog, pg_temp")
        connection.execute(MOVABLE_CLOCK)
    return name


@pytest.fixture
def empty_db(server: Server, planted: str) -> Iterator[PlantedDatabase]:
    yield from _lent(server, planted)


@pytest.fixture
def db(server: Server, planted_before_headrace: str) -> Iterator[PlantedDatabase]:
    yield from _lent(server, planted_before_headrace)


def _lent(server: Server, template: str) -> Iterator[PlantedDatabase]:
    database = PlantedDatabase(server, _copy(server, template))
    yield database
    caught = database.caught()
    database.close()
    server.drop_database(database.name)
    assert not caught, "something that was planted has run"


def _copy(server: Server, template: str) -> str:
    """The settings of a database are not copied with it."""
    name = server.create_database(template=template)
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute(f"alter database {name} set search_path = public, pg_catalog")
    return name
