"""A database in which pgmq's functions are Headrace's."""

from collections.abc import Iterator
from importlib import resources

import psycopg
import pytest

from tests.database import Database, Server

TEMPLATE = "headrace_pgmq_template"


@pytest.fixture(scope="session")
def _template(server: Server) -> Iterator[str]:
    name = server.create_database(template=Server.TEMPLATE)
    with psycopg.connect(server.dsn_of(name), autocommit=True) as connection:
        connection.execute("set check_function_bodies = off")
        folder = resources.files("headrace") / "sql" / "optional" / "pgmq"
        for file in sorted(folder.iterdir(), key=lambda file: file.name):
            try:
                connection.execute(file.read_text())
            except psycopg.Error as error:
                raise AssertionError(f"{file.name}: {error}") from error
    yield name
    server.drop_database(name)


@pytest.fixture
def db(server: Server, _template: str) -> Iterator[Database]:
    database = Database(server, server.create_database(template=_template))
    yield database
    database.close()
    server.drop_database(database.name)
