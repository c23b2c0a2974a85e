"""A database that tests take turns with: for those that change rows and nothing else, and are many."""

import time
from collections.abc import Iterator

import pytest

from tests.database import Database, Server

WIPE = """
do $$
declare
    place regclass;
begin
    for place in
        select c.oid from pg_class c
        where c.relnamespace = 'headrace'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
          and c.relname not in ('migrations', 'release', 'optional', 'namespaces', 'queues')
    loop
        execute format('delete from %s', place);
    end loop;
    update headrace_test.clock set shift = '0';
    perform headrace_test.let_run();
    perform setval('headrace.ids', 1, false);
    update headrace.namespaces set floor = 0 where floor > 0;
end $$
"""
ALONE = """
select not exists (select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
                   and backend_type = 'client backend')
"""


@pytest.fixture(scope="module")
def _turns(server: Server) -> Iterator[list[str]]:
    """The database whose turn it is, if there is a clean one."""
    names: list[str] = []
    yield names
    for name in names:
        server.drop_database(name)


@pytest.fixture
def recycled_db(server: Server, _turns: list[str]) -> Iterator[Database]:
    """As `db`, much sooner there: the last test's, emptied. One that cannot be emptied is not used again."""
    name = _turns.pop() if _turns else server.create_database(template=Server.TEMPLATE)
    database = Database(server, name)
    yield database
    database.close()
    if _emptied(Database(server, name)):
        _turns.append(name)
    else:
        server.drop_database(name)


def _emptied(database: Database) -> bool:
    """Whether the last test is really gone, and what it left too."""
    try:
        deadline = time.monotonic() + 2
        while database.sql(ALONE) == [(False,)]:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        database.sql(WIPE)
        return True
    finally:
        database.close()


@pytest.fixture
def patient(db: Database) -> Iterator[None]:
    """For those who wait on purpose: a test that is held up does not make them give up."""
    _wait_at_most(db, "60s")
    yield
    _wait_at_most(db, "500ms")  # the database may be the next test's


def _wait_at_most(db: Database, time: str) -> None:
    for function in ("take", "erase", "revive"):
        db.sql(f"alter function headrace.{function} set lock_timeout = '{time}'")
