"""A PostgreSQL of a test's own, as durable as it comes, that may be stopped, killed and started again."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from headrace.embedded import EmbeddedPostgres, find_binaries
from tests.database import Database, Server
from tests.embedded.processes import eventually, is_running, postmaster
from tests.folders import short_folder


class Crashable:
    """A database in a PostgreSQL that may be killed."""

    def __init__(self, postgres: EmbeddedPostgres) -> None:
        self.postgres = postgres
        self._server = Server(postgres, find_binaries())
        self._name = self._server.create_database(template=Server.TEMPLATE)
        self.db = Database(self._server, self._name)

    def crash(self) -> None:
        """All its processes at once: a backend that only lost its parent would still answer."""
        signal_all(self.processes(), signal.SIGKILL)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It is there, and does not answer."""
        processes = self.processes()
        signal_all(processes, signal.SIGSTOP)
        try:
            yield
        finally:
            signal_all(processes, signal.SIGCONT)

    def processes(self) -> list[int]:
        backends = self.db.sql("select pid from pg_stat_activity")
        return [postmaster(self.postgres.data), *(pid for (pid,) in backends)]

    def stop(self, number: int) -> None:
        """SIGINT: it says goodbye to everybody. SIGQUIT: it does not. SIGKILL: its children find out by themselves."""
        os.kill(postmaster(self.postgres.data), number)
        eventually(lambda: not is_running(self.postgres.data))

    def revive(self) -> None:
        self.postgres.start()
        self.disconnect()
        self._server = Server(self.postgres, find_binaries())
        self.db = Database(self._server, self._name)

    def disconnect(self) -> None:
        self.db.close()
        self._server.close()

    def close(self) -> None:
        self.db.close()
        self._server.drop_database(self._name)
        self._server.close()


def signal_all(processes: list[int], number: int) -> None:
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


@pytest.fixture(scope="module")
def durable() -> Iterator[EmbeddedPostgres]:
    """A server of its own, as durable as it comes."""
    with short_folder() as folder, EmbeddedPostgres(folder / "data") as postgres:
        server = Server(postgres, find_binaries())
        server.prepare_template()
        server.close()
        yield postgres


@pytest.fixture
def crashable(durable: EmbeddedPostgres) -> Iterator[Crashable]:
    crashable = Crashable(durable)
    yield crashable
    crashable.close()
