"""A PostgreSQL of a distribution, with its pg_cron and pg_partman."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.embedded import EmbeddedPostgres, find_binaries
from headrace.install.migrate import migrate
from tests.database import Database, Server
from tests.folders import short_folder

NEEDED = ("pg_cron", "pg_partman")


def binaries() -> Path:
    """The folder of the programs of a PostgreSQL that has both."""
    for extensions in sorted(Path("/usr/share/postgresql").glob("*/extension"), reverse=True):
        folder = Path("/usr/lib/postgresql") / extensions.parent.name / "bin"
        if all((extensions / f"{name}.control").exists() for name in NEEDED) and folder.exists():
            return folder
    pytest.skip("no PostgreSQL here has pg_cron and pg_partman")


@pytest.fixture(scope="session")
def house() -> Iterator[Server]:
    """The server. pg_cron lives in its database `headrace`, and may live in one only."""
    folder = binaries()
    settings = {
        "fsync": "off",
        "shared_preload_libraries": "pg_cron",
        "cron.database_name": "headrace",
        "cron.use_background_workers": "on",  # as a client it would have to get in by TCP
        "max_worker_processes": "20",
    }
    with (
        short_folder() as data,
        EmbeddedPostgres(data / "data", binaries=folder, settings=settings) as postgres,
    ):
        server = Server(postgres, find_binaries(folder=folder))
        server.prepare_template()
        yield server
        server.close()


@pytest.fixture(scope="session")
def installed(house: Server) -> Iterator[Database]:
    """The database that pg_cron lives in, with Headrace in it."""
    database = Database(house, "headrace")
    database.sql("create extension if not exists pg_cron")
    migrate(database.connect())
    yield database
    database.close()


@pytest.fixture
def db(installed: Database) -> Iterator[Database]:
    """The same, with nothing in it: neither rows nor parts."""
    yield installed
    migrate(installed.connect(), remove=["pg_cron"])
    installed.sql("""
        delete from headrace.scheduled_tasks;
        delete from headrace.fires;
        delete from headrace.leases;
        delete from headrace.delayed;
        delete from headrace.ready;
        delete from headrace.events;
    """)
