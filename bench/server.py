"""The PostgreSQL that is measured: one of our own, or a given one, in databases made for the purpose."""

import itertools
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from bench import peers
from headrace.embedded import EmbeddedPostgres, find_binaries
from headrace.install.migrate import migrate

# fsync and synchronous_commit stay on. No checkpoint and no autovacuum falls into one contender's
# time and not into another's: tables are vacuumed between the rounds, which is measured apart.
SETTINGS = {
    "autovacuum": "off",
    "checkpoint_timeout": "1h",
    "max_wal_size": "8GB",
    "shared_buffers": "512MB",
}


class Server:
    """Gives fresh databases, and drops them."""

    def __init__(self, dsn: str, folder: Path | None = None) -> None:
        self.dsn = dsn
        self._folder = folder
        self.admin = psycopg.connect(dsn, autocommit=True)
        self._name = f"headrace_bench_{secrets.token_hex(4)}"
        self._numbers = itertools.count(1)
        try:
            self._prepare_template()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._drop(self._name)
        self.admin.close()

    @property
    def version(self) -> str:
        return self.admin.info.parameter_status("server_version") or "?"

    def setting(self, name: str) -> str:
        row = self.admin.execute("select current_setting(%s)", [name]).fetchone()
        return str(row and row[0])

    def fsync_ms(self) -> float | None:
        """How long a page takes to the disk; on a RAM disk nothing, and then rates say little."""
        return None if self._folder is None else _fsync_ms(self._folder)

    @contextmanager
    def database(self, *, empty: bool = False) -> Iterator[str]:
        """The DSN of a new database with Headrace, the floor's table and the peers in it; or with
        nothing."""
        name = f"{self._name}_{next(self._numbers)}"
        self._create(name, "template1" if empty else self._name)
        try:
            yield self._dsn_of(name)
        finally:
            self._drop(name)

    def _prepare_template(self) -> None:
        self._create(self._name, "template1")
        with psycopg.connect(self._dsn_of(self._name), autocommit=True) as connection:
            migrate(connection)
            peers.install(connection)

    def _dsn_of(self, database: str) -> str:
        return make_conninfo(self.dsn, dbname=database)

    def _create(self, name: str, template: str) -> None:
        self.admin.execute(
            sql.SQL("create database {} template {}").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )

    def _drop(self, name: str) -> None:
        self.admin.execute(
            sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name))
        )


@contextmanager
def serve(
    dsn: str | None, settings: Mapping[str, str] = SETTINGS, major: int | None = None
) -> Iterator[Server]:
    """A server of somebody's, or one of our own, of this major version."""
    if dsn:
        with closing(Server(dsn)) as server:
            yield server
        return
    binaries = None if major is None else find_binaries(major).folder
    folder = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    folder.chmod(0o755)  # PostgreSQL does not run as root, and another user must get in
    try:
        with (
            EmbeddedPostgres(folder / "data", binaries=binaries, settings=settings) as postgres,
            closing(Server(postgres.dsn, folder)) as server,
        ):
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fsync_ms(folder: Path) -> float:
    file = os.open(folder / "fsync", os.O_RDWR | os.O_CREAT)
    try:
        times = []
        for _ in range(21):
            os.pwrite(file, os.urandom(8192), 0)
            started = time.perf_counter()
            os.fsync(file)
            times.append(time.perf_counter() - started)
        return sorted(times)[10] * 1000
    finally:
        os.close(file)
