"""The PostgreSQL of an experiment: as durable as it comes, and to be stopped, killed, frozen and started again."""

import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import psycopg
from psycopg.conninfo import make_conninfo

from headrace.embedded import EmbeddedPostgres
from headrace.install.migrate import migrate
from tests.embedded.processes import is_running, postmaster

PATIENCE = 60.0

ACTOR = "actor"
PLACES = f"""
create table orders (key text);
create table effects (event bigint, attempt int);
grant select, insert on orders, effects to {ACTOR};
"""


class House:
    """`dsn` is the laboratory's own, `way_in` the actors': a user who may no more than is needed, with a password."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.postgres = EmbeddedPostgres(folder, settings=settings)
        self.postgres.start()
        self.password = f"lab-{secrets.token_hex(12)}"
        with self.connect() as connection:
            migrate(connection)
            self._let_in(connection)
            connection.execute(PLACES)

    @classmethod
    def following(cls, folder: Path, first: "House") -> Self:
        """One whose folder is there already, with all that is in it."""
        made = cls.__new__(cls)
        made.postgres = EmbeddedPostgres(folder)
        made.postgres.start()
        made.password = first.password
        return made

    def _let_in(self, connection: psycopg.Connection[Any]) -> None:
        """By the password, which the server gets to know no more of than it must."""
        hashed = connection.pgconn.encrypt_password(
            self.password.encode(), ACTOR.encode(), b"scram-sha-256"
        )
        connection.execute(
            f"create role {ACTOR} login password '{hashed.decode()}'"
            " in role headrace_publisher, headrace_worker, headrace_admin"
        )
        self._open_door()
        connection.execute("select pg_reload_conf()")

    def _open_door(self) -> None:
        doors = self.postgres.data / "pg" / "pg_hba.conf"
        doors.write_text(f"local all {ACTOR} scram-sha-256\n{doors.read_text()}")

    @property
    def dsn(self) -> str:
        return self.postgres.dsn

    @property
    def way_in(self) -> str:
        return make_conninfo(self.dsn, user=ACTOR, password=self.password)

    @property
    def logs(self) -> list[Path]:
        return [self.postgres.log]

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

    def tick(self) -> None:
        with self.connect() as connection:
            connection.execute("select from headrace.tick()")

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
