"""A database for tests: with Headrace in it, a clock that can be moved, and empty again after every test."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import make_conninfo

from headrace.embedded import EmbeddedPostgres
from headrace.migrate import migrate
from headrace.opening import usable
from headrace.testing.folders import short_folder

PATIENCE = "2s"  # for who is still at work when a test has ended

# The engine asks headrace.now() and nothing else for the time. Security definer: whoever may call the
# engine may read the moved clock. In seconds: a day has 23 hours somewhere, and it is one time for all sessions.
MOVABLE_CLOCK = """
create schema headrace_test;
create table headrace_test.clock (shift interval not null);
insert into headrace_test.clock values ('0');
create or replace function headrace.now() returns timestamptz
language plpgsql stable parallel safe security definer
set search_path = pg_catalog, pg_temp
as $$ begin return clock_timestamp() + (select make_interval(secs => extract(epoch from c.shift)::float8) from headrace_test.clock c); end $$;
create function headrace_test.let_run() returns void
language sql
as $$
    delete from headrace.clock_readings;
    insert into headrace.clock_readings (at)
    select t.at - n * interval '1 microsecond' from (select headrace.now() as at offset 0) t, generate_series(0, 11) n;
$$;
select headrace_test.let_run();
"""
MOVE = "update headrace_test.clock set shift = shift + %s"
LET_RUN = "select headrace_test.let_run()"
"""For an hour: nothing is thrown away before the clock has, see headrace.retention_clock."""
HOUR = timedelta(hours=1)

# Numbers are not given again: somebody's client may remember how far it was.
_EMPTY = """
do $$
declare
    place regclass;
begin
    for place in
        select c.oid from pg_class c
        where c.relnamespace = 'headrace'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
          and c.relname not in ('migrations', 'release')
        order by c.relname in ('queues', 'namespaces'), c.relname = 'namespaces'
    loop
        execute format('delete from %s', place);
    end loop;
    update headrace_test.clock set shift = '0' where shift <> '0';
    perform headrace_test.let_run();
    perform headrace.create_namespace('default');
end $$
"""
_END_OTHERS = """
select pg_terminate_backend(pid, 5000) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
"""


class Database:
    """The one of a run of tests, which take turns with it."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.connection = psycopg.connect(dsn, autocommit=True, prepare_threshold=None)

    def sql(self, query: str, params: Any = None) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(query, params)
        return cursor.fetchall() if cursor.description else []

    def advance(self, by: timedelta) -> None:
        self.sql(MOVE, [by])
        if by >= HOUR:
            self.sql(LET_RUN)

    def empty(self, patience: str = PATIENCE) -> None:
        """Remove everything. Who still has something locked after a while is disconnected."""
        self.sql(f"set lock_timeout = '{patience}'")
        try:
            self.sql(_EMPTY)
        except (errors.LockNotAvailable, errors.DeadlockDetected):
            self.sql(_END_OTHERS)
            self.sql(_EMPTY)

    def close(self) -> None:
        self.connection.close()


@contextmanager
def database() -> Iterator[Database]:
    """A new database, on the server that HEADRACE_TEST_DSN names, or on one that is started for it."""
    with _server() as dsn, psycopg.connect(dsn, autocommit=True) as admin:
        name = f"headrace_test_{uuid.uuid4().hex[:12]}"
        admin.execute(
            sql.SQL("create database {} template template0 encoding 'UTF8'").format(
                sql.Identifier(name)
            )
        )
        made = Database(make_conninfo(dsn, dbname=name))
        try:
            migrate(made.connection)
            made.sql(MOVABLE_CLOCK)
            yield made
        finally:
            made.close()
            admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@contextmanager
def _server() -> Iterator[str]:
    given = os.environ.get("HEADRACE_TEST_DSN")
    if given:
        yield usable(given)
        return
    # What is lost in a crash was a test's: nothing waits for the disk.
    with (
        short_folder() as folder,
        EmbeddedPostgres(folder / "data", settings={"fsync": "off"}) as postgres,
    ):
        yield postgres.dsn
