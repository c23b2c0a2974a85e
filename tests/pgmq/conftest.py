"""A database in which pgmq's functions are Headrace's; tests take turns with it, since they change nothing but rows."""

from collections.abc import Iterator

import pytest

from headrace.install.migrate import migrate
from tests.database import Database, Server

EMPTY = """
do $$
declare
    place regclass;
begin
    for place in
        select c.oid from pg_class c
        where c.relnamespace = 'headrace'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
          and c.relname not in ('migrations', 'release', 'optional', 'namespaces', 'queues', 'shard', 'identity')
    loop
        execute format('delete from %s', place);
    end loop;
    delete from headrace.queues;
    delete from headrace.namespaces;
    perform headrace.create_namespace('default'), pgmq._home();
    update headrace_test.clock set shift = '0';
end $$
"""


@pytest.fixture(scope="module")
def _shared(server: Server) -> Iterator[str]:
    name = server.create_database(template=Server.TEMPLATE)
    database = Database(server, name)
    migrate(database.connect(), add=["pgmq"])
    database.close()
    yield name
    server.drop_database(name)


@pytest.fixture
def db(server: Server, _shared: str) -> Iterator[Database]:
    database = Database(server, _shared)
    yield database
    database.close()
    with Database(server, _shared).connect() as connection:
        connection.execute(EMPTY)
