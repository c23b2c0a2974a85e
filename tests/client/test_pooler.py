"""A transaction pooler in front: no session belongs to a client for longer than a transaction."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import headrace
from headrace.embedded.identity import candidates
from tests.database import Database
from tests.requirements import requirement

SETTINGS = """\
[databases]
* = host={host} port={port} user={user}
[pgbouncer]
pool_mode = transaction
default_pool_size = 2
unix_socket_dir = {folder}
listen_addr =
listen_port = 6432
auth_type = any
logfile = {folder}/log
"""


@pytest.fixture
def pooled(db: Database) -> Iterator[str]:
    """The DSN of the test's database behind a PgBouncer with two connections."""
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
        db.wait_for(lambda: answers(dsn))
        yield dsn
    finally:
        process.terminate()
        process.wait(timeout=20)
        shutil.rmtree(folder, ignore_errors=True)


def answers(dsn: str) -> bool:
    try:
        with psycopg.connect(dsn):
            return True
    except psycopg.OperationalError:
        return False


@requirement("G19")
def test_clients_share_sessions_behind_a_transaction_pooler(pooled: str, db: Database) -> None:
    def work(number: int) -> int:
        done = 0
        with headrace.connect(pooled, prepare=False, pool_size=2, worker=f"w{number}") as queue:
            queue.publish_many([("a", {"n": n}) for n in range(1_200)])
            while claimed := queue.poll(max_events=100, each=number % 2 == 0):
                queue.extend(claimed)
                queue.complete(claimed)
                done += len(claimed)
            queue.stats(), queue.tick(), queue.log(1)
        return done

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(work, range(4))) == 4_800
    assert set(map(tuple, db.placement().values())) == {("outcome",)}


def test_a_transaction_of_the_callers_works_behind_a_transaction_pooler(
    pooled: str, db: Database
) -> None:
    with (
        headrace.connect(pooled, prepare=False) as queue,
        psycopg.connect(pooled, prepare_threshold=None) as connection,
    ):
        queue.publish("a", connection=connection)
        queue.publish_many([("a", {})] * 1_500, connection=connection)
        assert db.placement() == {}
        connection.rollback()
        queue.publish("a", connection=connection)
        connection.commit()
        (claimed,) = queue.poll(each=True)
        queue.complete(claimed, connection=connection)
        connection.commit()
    assert list(db.placement().values()) == [["outcome"]]
