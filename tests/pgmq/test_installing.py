"""pgmq's functions are installed on request, never beside pgmq itself."""

import pytest
from pgmq.install import get_embedded_install_sql

from headrace import NotInstallable
from headrace.install.migrate import migrate
from tests.database import Database, Server


@pytest.fixture
def db(server: Server, empty_db: Database) -> Database:
    """A database of its own: what is installed here is no matter of rows."""
    migrate(empty_db.connect())
    return empty_db


def test_they_are_refused_beside_the_real_ones(db: Database) -> None:
    db.connect().execute(get_embedded_install_sql())
    with pytest.raises(NotInstallable, match="There is a schema pgmq already"):
        migrate(db.connect(), add=["pgmq"])
    # As an extension, which is not built for this server: all that is asked for is its entry.
    db.sql("drop schema pgmq cascade")
    db.sql("set allow_system_table_mods = on")
    db.sql("""
        insert into pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion)
        select 4242, 'pgmq', extowner, extnamespace, false, '1.5.0' from pg_extension limit 1
    """)
    with pytest.raises(NotInstallable, match="The extension pgmq is installed"):
        migrate(db.connect(), add=["pgmq"])


def test_they_are_refused_beside_a_namespace_of_that_name(db: Database) -> None:
    db.sql("select headrace.create_namespace('pgmq')")
    with pytest.raises(NotInstallable, match="There is a namespace pgmq already"):
        migrate(db.connect(), add=["pgmq"])


def test_their_queues_outlive_them(db: Database) -> None:
    migrate(db.connect(), add=["pgmq"])
    db.sql("select pgmq.create('jobs')")
    [(id,)] = db.sql("""select pgmq.send('jobs', '{"n": 1}')""")
    assert migrate(db.connect(), remove=["pgmq"]) is True
    assert db.sql("select to_regnamespace('pgmq')") == [(None,)]
    with db.queue(namespace="pgmq", queue="jobs") as queue:
        assert [claimed.payload for claimed in queue.poll(lease=1)] == [{"n": 1}]
    assert migrate(db.connect(), add=["pgmq"]) is True
    assert db.sql("select pgmq.delete('jobs', %s)", [id]) == [(True,)]
