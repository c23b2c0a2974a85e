"""A database that another test had before is as the template is, or it is not used again."""

import threading
from collections.abc import Callable

import psycopg
import pytest

from tests.database import Database, Server

PLACES = """
select c.oid::regclass::text, case c.relkind when 'r' then '*' else 'last_value, is_called' end
from pg_class c where c.relnamespace in ('headrace'::regnamespace, 'headrace_test'::regnamespace) and c.relkind in ('r', 'S')
"""


@pytest.fixture(autouse=True)
def anew(server: Server) -> None:
    server.start_anew()


def content(db: Database) -> dict[str, list[tuple[object, ...]]]:
    return {place: db.sql(f"select {what} from {place}") for place, what in db.sql(PLACES)}


def used(server: Server, use: Callable[[Database], object]) -> tuple[str, str]:
    """The names of a database that was used so, and of the one that comes next."""
    first = server.lend()
    use(first)
    first.give_back()
    second = server.lend()
    second.give_back()
    return first.name, second.name


def work(db: Database) -> None:
    queue = db.queue()
    queue.create_queue("more")
    for _ in range(3):
        queue.publish("a", {"b": 1}, key="k")
    assert queue.poll() is not None
    db.advance(days=2)
    db.connect().execute("listen x; select pg_advisory_lock(1)")
    db.connect(autocommit=False).execute("select headrace.publish('default', '{}')")


def test_everything_is_as_in_the_template(server: Server) -> None:
    database = server.lend()
    before = content(database)
    database.give_back()
    first, second = used(server, work)
    assert first == second == database.name
    again = server.lend()
    assert content(again) == before
    assert again.sql("select from pg_locks where locktype = 'advisory'") == []
    again.give_back()


def test_a_database_of_another_template_stays_with_its_own_kind(server: Server) -> None:
    said = "select proconfig::text like '%60s%' from pg_proc where proname = 'erase'"
    lenders = (server.lend_patient, server.lend, lambda: server.lend_shard(64, 7))
    seen = []
    for lend in (*lenders, *lenders):
        database = lend()
        seen.append(
            (database.name, database.sql(said), database.sql("select shard from headrace.shard()"))
        )
        database.queue().publish("a")
        database.give_back()
    assert seen[:3] == seen[3:]
    assert [patient for _, [(patient,)], _ in seen[:3]] == [True, False, False]
    assert len({name for name, *_ in seen}) == 3


def test_a_table_of_the_tests_own_is_dropped(server: Server) -> None:
    first, second = used(server, lambda db: db.sql("create table t (id serial primary key)"))
    assert first == second


@pytest.mark.parametrize(
    "statement",
    [
        "alter function headrace._now() set work_mem = '1MB'",
        "create function public.f() returns int language sql as 'select 1'",
        "alter table headrace.ready add column more int",
        "drop view headrace.event_queue cascade",
        "grant usage on schema headrace to pg_monitor",
        "comment on table headrace.ready is 'a'",
        "analyze headrace.namespaces",
        "create table headrace.more ()",
        "create trigger t after insert on headrace.ready execute function suppress_redundant_updates_trigger()",
        "do $$ begin execute format('alter database %I set work_mem = ''1MB''', current_database()); end $$",
    ],
)
def test_whoever_changes_more_than_rows_has_spoiled_it(server: Server, statement: str) -> None:
    first, second = used(server, lambda db: db.sql(statement))
    assert first != second


def test_a_session_that_stays_has_spoiled_it(server: Server) -> None:
    left: list[psycopg.Connection] = []
    first, second = used(server, lambda db: left.append(psycopg.connect(db.dsn)))
    left[0].close()
    assert first != second


def test_a_thread_that_stays_has_spoiled_it(server: Server) -> None:
    end = threading.Event()
    first, second = used(server, lambda _: threading.Thread(target=end.wait).start())
    end.set()
    assert first != second


def test_a_session_that_was_given_back_is_closed_to_who_had_it(server: Server) -> None:
    left: list[psycopg.Connection] = []
    used(server, lambda db: left.append(db.connect()))
    assert left[0].closed


@pytest.mark.new_database
def test_a_test_that_asks_for_it_gets_a_new_one(db: Database) -> None:
    assert db.copy is None
    assert db.sql("select count(*) from pg_stat_activity where datname = current_database()") == [
        (1,)
    ]
