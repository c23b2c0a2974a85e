"""A database for tests: Headrace with a movable clock, emptied after every test."""

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

from headrace.driver.connect import usable
from headrace.embedded import EmbeddedPostgres
from headrace.install.migrate import migrate
from headrace.testing.folders import short_folder

PATIENCE = "2s"  # for sessions that still work when a test has ended

# The engine reads the time from headrace._now() alone. Security definer: a role that may call the
# engine may read the moved clock. In seconds: some days have 23 hours, and all sessions must read
# the same time.
MOVABLE_CLOCK = """
create schema headrace_test;
create table headrace_test.clock (shift interval not null);
insert into headrace_test.clock values ('0');
create or replace function headrace._now() returns timestamptz
language plpgsql stable parallel safe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return clock_timestamp()
        + (select make_interval(secs => extract(epoch from c.shift)::float8) from headrace_test.clock c);
end $$;
create function headrace_test.let_run() returns void
language sql
as $$
    delete from headrace.clock_readings;
    insert into headrace.clock_readings (at)
    select t.at - n * interval '1 microsecond'
    from (select headrace._now() as at offset 0) t, generate_series(0, 11) n;
$$;
select headrace_test.let_run();
"""
MOVE = "update headrace_test.clock set shift = shift + %s"
LET_RUN = "select headrace_test.let_run()"
"""For moves of an hour or more: retention removes nothing until the clock has run that long, see
headrace._retention_clock."""
HOUR = timedelta(hours=1)

# Ids are not reused: a client may remember its position in the log. The database stays what it is.
_EMPTY = """
do $$
declare
    place regclass;
begin
    for place in
        select c.oid from pg_class c
        where c.relnamespace = 'headrace'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
          and c.relname not in ('migrations', 'release', 'shard', 'identity')
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
    """The database of a test run, used by one test at a time."""

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
        """Remove everything. A session that still holds locks after `patience` is disconnected."""
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
    """A new database, on the server of HEADRACE_TEST_DSN or on an embedded one."""
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
    # A crash may lose test data: nothing waits for the disk.
    with (
        short_folder() as folder,
        EmbeddedPostgres(folder / "data", settings={"fsync": "off"}) as postgres,
    ):
        yield postgres.dsn
