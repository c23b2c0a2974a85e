"""A PgBouncer between a test and its database."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headrace.embedded.identity import candidates
from tests.database import Database

SETTINGS = """\
[databases]
* = host={host} port={port} user={user}
[pgbouncer]
pool_mode = {mode}
default_pool_size = 2
unix_socket_dir = {folder}
listen_addr =
listen_port = 6432
auth_type = any
logfile = {folder}/log
"""


@contextmanager
def pgbouncer(db: Database, mode: str = "transaction") -> Iterator[str]:
    """The DSN of a database behind a PgBouncer that has two connections to it."""
    program = shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        pytest.skip("pgbouncer is not installed")
    folder = Path(tempfile.mkdtemp(prefix="hr-", dir="/tmp"))
    known = conninfo_to_dict(db.dsn)
    # It refuses root, as PostgreSQL does, and must be able to reach the socket that one made.
    identity = next(iter(candidates(db.server.data)))
    identity.own(folder)
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        SETTINGS.format(
            host=Path(str(known["host"])).resolve(),
            port=known.get("port") or 5432,
            user=known["user"],
            mode=mode,
            folder=folder,
        )
    )
    identity.own(settings)
    process = subprocess.Popen(
        [*identity.prefix, program, str(settings)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        user=identity.user[0] if identity.user else None,
        group=identity.user[1] if identity.user else None,
    )
    dsn = make_conninfo(db.dsn, host=str(folder), port="6432")
    try:
        db.wait_for(lambda: _answers(dsn))
        yield dsn
    finally:
        process.terminate()
        process.wait(timeout=60)
        shutil.rmtree(folder, ignore_errors=True)


def _answers(dsn: str) -> bool:
    try:
        with psycopg.connect(dsn):
            return True
    except psycopg.OperationalError:
        return False
