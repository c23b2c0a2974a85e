"""The PostgreSQL of an experiment: as durable as it comes, and to be stopped, killed, frozen and started again."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import psycopg

from headrace.embedded import EmbeddedPostgres
from headrace.migrate import migrate
from tests.embedded.processes import is_running, postmaster

PATIENCE = 60.0

PLACES = """
create table orders (key text);
create table effects (event bigint, attempt int);
"""


class House:
    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.postgres = EmbeddedPostgres(folder, settings=settings)
        self.postgres.start()
        with self.connect() as connection:
            migrate(connection)
            connection.execute(PLACES)

    @classmethod
    def following(cls, folder: Path) -> Self:
        """One whose folder is there already, with all that is in it."""
        made = cls.__new__(cls)
        made.postgres = EmbeddedPostgres(folder)
        made.postgres.start()
        return made

    @property
    def dsn(self) -> str:
        return self.postgres.dsn

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.dsn, autocommit=True, connect_timeout=10)

    def sql(self, statement: str, *parameters: Any) -> list[Any]:
        """Asked again until it is answered: the server may just be away."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with self.connect() as connection:
                    cursor = connection.execute(statement, parameters or None)
                    return [] if cursor.description is None else cursor.fetchall()
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def stop(self, number: int) -> None:
        """SIGINT: fast. SIGQUIT: immediate. SIGKILL: its children find out by themselves."""
        processes = self.processes() if number == signal.SIGKILL else []
        os.kill(postmaster(self.postgres.data), number)
        for pid in processes:  # a backend that only lost its parent would still answer
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        eventually(lambda: not is_running(self.postgres.data))

    def start(self) -> None:
        self.postgres.start()

    def processes(self) -> list[int]:
        parent = postmaster(self.postgres.data)
        children = subprocess.run(
            ["ps", "--ppid", str(parent), "-o", "pid="], capture_output=True, text=True
        )
        return [parent, *map(int, children.stdout.split())]

    @contextmanager
    def frozen(self) -> Iterator[None]:
        processes = self.processes()
        for pid in processes:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in processes:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def close(self) -> None:
        self.postgres.close()


def eventually(condition: Callable[[], object], patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("it did not happen")
        time.sleep(0.02)
