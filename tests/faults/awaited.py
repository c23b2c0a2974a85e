"""A PostgreSQL whose commits can be made to wait for a synchronous standby that does not come."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from headrace.embedded import EmbeddedPostgres, find_binaries
from tests.database import Database, Server
from tests.folders import short_folder

COMMIT = "select pg_logical_emit_message(true, 'tests', '')"
WAITING = "select pid from pg_stat_activity where datname = %s and wait_event = 'SyncRep'"


class Awaiting(Database):
    """A test's own database on such a server. What the test itself commits here waits for nobody."""

    def __init__(self, server: Server, name: str) -> None:
        super().__init__(server, name)
        self.sql("set synchronous_commit = local")

    @contextmanager
    def nobody_follows(self) -> Iterator[None]:
        """Every commit waits, until this ends."""
        self._follow("nobody")
        try:
            self._make_sure()
            yield
        finally:
            self._follow("")

    def _follow(self, names: str) -> None:
        self.sql(f"alter system set synchronous_standby_names = '{names}'")
        self.sql("select pg_reload_conf()")

    def _make_sure(self) -> None:
        """The checkpointer has read it: a commit waits, and its wait is cancelled."""
        with self.connect() as connection:
            connection.execute("set synchronous_commit = on")
            self.wait_for(lambda: self._waits(connection))

    def _waits(self, connection: "psycopg.Connection[Any]") -> bool:
        pid = connection.info.backend_pid
        trial = threading.Thread(target=connection.execute, args=[COMMIT])
        trial.start()
        self.wait_for(lambda: not trial.is_alive() or pid in self.waiting())
        waits = trial.is_alive()
        if waits:
            self.sql("select pg_cancel_backend(%s)", [pid])
        trial.join()
        return waits

    def waiting(self) -> list[int]:
        """The backends whose commit waits."""
        return [pid for (pid,) in self.sql(WAITING, [self.name])]

    def wait_until_waiting(self, count: int = 1) -> list[int]:
        self.wait_for(lambda: len(self.waiting()) >= count)
        return self.waiting()

    def end_waits(self, how: str = "pg_cancel_backend") -> None:
        """Of those that wait now: as an operator would, or by `pg_terminate_backend`."""
        for pid in self.wait_until_waiting():
            self.sql(f"select {how}(%s)", [pid])


@pytest.fixture(scope="module")
def awaiting_server() -> Iterator[Server]:
    settings = {"fsync": "off", "full_page_writes": "off"}
    with (
        short_folder() as folder,
        EmbeddedPostgres(folder / "data", settings=settings) as postgres,
    ):
        server = Server(postgres, find_binaries())
        server._admin.execute("set synchronous_commit = local")
        server.prepare_template()
        yield server
        server.close()


@pytest.fixture
def awaiting(awaiting_server: Server) -> Iterator[Awaiting]:
    database = Awaiting(awaiting_server, awaiting_server.create_database(template=Server.TEMPLATE))
    yield database
    database.close()
    awaiting_server.drop_database(database.name)
