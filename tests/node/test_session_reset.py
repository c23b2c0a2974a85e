"""The connection that a handler gets comes back as it was given, whatever the handler does with it."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.string import StrDumper

from headrace import Claimed, Node
from headrace.driver import session_reset
from tests.database import Database
from tests.node.nodes import node, running, settled, until

pytestmark = pytest.mark.anyio

KINDS = pytest.mark.parametrize("kind", ["async", "plain"])

# What a handler does, and where it would be seen by the next.
LEFT_IN_THE_SESSION = {
    "select set_config('app.tenant', '7', false)": "select nullif(current_setting('app.tenant', true), '')",
    "set statement_timeout = '1h'": "show statement_timeout",
    "set search_path = pg_temp": "show search_path",
    "set default_transaction_read_only = on": "show transaction_read_only",
    "set default_transaction_isolation = 'serializable'": "show transaction_isolation",
    "set default_transaction_deferrable = on": "show transaction_deferrable",
    "set idle_session_timeout = '1h'": "show idle_session_timeout",
    "set local statement_timeout = '1h'": "show statement_timeout",
    "set local role headrace_admin": "select current_user, session_user",
    "set datestyle = 'SQL, DMY'": "show datestyle",
    "set timezone = 'Asia/Tokyo'": "show timezone",
    "set client_encoding = 'latin1'": "show client_encoding",
    "set role headrace_admin": "select current_user, session_user",
    "set session authorization headrace_admin": "select current_user, session_user",
    "create temp table left_over (a int)": "select to_regclass('left_over')",
    "listen a_channel": "select count(*) from pg_listening_channels()",
    "LISTEN a_channel": "select count(*) from pg_listening_channels()",
    "select pg_advisory_lock(7)": "select count(*) from pg_locks where locktype = 'advisory' and objid = 7",
    "declare c cursor with hold for select 1": "select count(*) from pg_cursors where is_holdable",
    "prepare a_plan as select 1": "select count(*) from pg_prepared_statements where from_sql",
}
OUTLIVE_A_ROLLBACK = ["select pg_advisory_lock(7)", "prepare a_plan as select 1"]


def on(one: Node, kind: str, type: str, do: Callable[[Any, Any], Any], **options: Any) -> None:
    """Register a handler that sends what `do` says, and gives the answers back to it."""

    if kind == "async":

        @one.on_event(type, **options)
        async def handle(event: Claimed, connection: Any) -> None:
            sent = do(event.payload, connection)
            if sent is not None:
                query, then = sent
                cursor = await connection.execute(query)
                then(await cursor.fetchall() if cursor.description else None)

    else:

        @one.on_event(type, **options)
        def handle_plainly(event: Claimed, connection: Any) -> None:
            sent = do(event.payload, connection)
            if sent is not None:
                query, then = sent
                cursor = connection.execute(query)
                then(cursor.fetchall() if cursor.description else None)


def nothing(rows: Any) -> None:
    pass


def refuse(rows: Any) -> None:
    raise RuntimeError("so that all is rolled back")


@KINDS
async def test_what_a_handler_leaves_in_the_session_is_not_there_for_the_next(
    db: Database, kind: str
) -> None:
    queue = db.queue()
    one = node(db, concurrency=1, connections=1)
    seen: list[Any] = []
    sessions: set[int] = set()

    def look(query: str, connection: Any) -> Any:
        sessions.add(connection.info.backend_pid)
        return query, seen.append

    on(one, kind, "do", lambda query, connection: (query, nothing))
    on(one, kind, "refuse", lambda query, connection: (query, refuse), max_retries=1)
    on(one, kind, "look", look)

    async def handled(type: str, query: str) -> str:
        id = queue.publish(type, query).id
        await until(lambda: queue.event(id).status in ("COMPLETED", "FAILED"))
        await settled(one)
        return queue.event(id).status

    async with running(one):
        for deed, probe in LEFT_IN_THE_SESSION.items():
            seen.clear()
            await handled("look", probe)
            assert await handled("do", deed) == "COMPLETED", deed
            await handled("look", probe)
            assert seen[0] == seen[1], deed
        assert len(sessions) == 1, "to replace the session each time would take long"
        for deed in OUTLIVE_A_ROLLBACK:
            seen.clear()
            await handled("look", LEFT_IN_THE_SESSION[deed])
            assert await handled("refuse", deed) == "FAILED"
            await handled("look", LEFT_IN_THE_SESSION[deed])
            assert seen[0] == seen[1], deed


@KINDS
async def test_a_lock_taken_inside_an_insert_is_released_after_a_statement_of_another_kind(
    db: Database, kind: str
) -> None:
    queue = db.queue()
    db.sql("create table effects (a text)")
    db.sql("create function take() returns text language sql as 'select pg_advisory_lock(7)::text'")
    one = node(db, concurrency=1, connections=1)
    on(one, kind, "do", lambda query, connection: (query, nothing))

    async def locks_after(query: str) -> int:
        id = queue.publish("do", query).id
        await until(lambda: queue.event(id).status == "COMPLETED")
        await settled(one)
        [(locks,)] = db.sql(
            "select count(*) from pg_locks where locktype = 'advisory' and objid = 7"
        )
        return locks

    async with running(one):
        assert await locks_after("insert into effects values (take())") == 1
        assert await locks_after("\n  insert into effects values (null)") == 1
        assert await locks_after("select 1") == 0


@KINDS
async def test_a_lock_of_the_session_is_given_up_with_the_commit_and_not_before(
    db: Database, kind: str
) -> None:
    queue = db.queue()
    db.sql("create table effects (a int)")
    other = db.connect()
    seen: list[Any] = []

    def ask() -> None:
        other.execute("select pg_advisory_lock(7)")
        seen.extend(other.execute("select count(*) from effects").fetchall())

    asking = threading.Thread(target=ask)

    def wait_for_it(rows: Any) -> None:
        asking.start()
        db.wait_until_blocked(other)

    one = node(db, concurrency=1)
    on(one, kind, "lock", lambda payload, connection: (LOCK_AND_WRITE, wait_for_it))
    async with running(one):
        id = queue.publish("lock").id
        await until(lambda: queue.event(id).status == "COMPLETED")
        await asyncio.to_thread(asking.join)
    assert seen == [(1,)]


LOCK_AND_WRITE = """
with locked as materialized (select pg_advisory_lock(7)) insert into effects select 1 from locked
"""


@KINDS
async def test_what_a_handler_sets_on_the_object_is_not_there_for_the_next(
    db: Database, kind: str
) -> None:
    queue = db.queue()
    one = node(db, concurrency=1, connections=1)
    seen: list[Any] = []

    class Loud(StrDumper):
        def dump(self, obj: Any) -> Any:
            return b"LOUD"

    def spoil(payload: Any, connection: Any) -> Any:
        is_async = isinstance(connection, psycopg.AsyncConnection)
        connection.row_factory = dict_row
        connection.cursor_factory = psycopg.AsyncRawCursor if is_async else psycopg.RawCursor
        connection.server_cursor_factory = psycopg.AsyncServerCursor
        connection.prepare_threshold = None
        connection.prepared_max = 0
        connection.adapters.register_dumper(str, Loud)
        connection.add_notice_handler(seen.append)
        return "prepare a_plan as select 1", nothing

    def look(payload: Any, connection: Any) -> Any:
        seen.append(
            (
                connection.row_factory,
                connection.cursor_factory,
                connection.server_cursor_factory,
                connection.prepare_threshold,
                connection.prepared_max,
                connection.adapters.get_dumper(str, psycopg.adapt.PyFormat.AUTO),
                len(connection._notice_handlers),
            )
        )
        return LEFT_IN_THE_SESSION["prepare a_plan as select 1"], seen.append

    on(one, kind, "spoil", spoil)
    on(one, kind, "look", look)
    async with running(one):
        for done, type in enumerate(("look", "spoil", "look"), 1):
            queue.publish(type)
            await until(lambda n=done: queue.stats().completed == n)
            await settled(one)
    assert seen[:2] == seen[2:]


@KINDS
@pytest.mark.parametrize("by", ["raising", "returning"])
async def test_a_pipeline_that_is_left_open_fails_its_event_and_harms_no_other(
    db: Database, kind: str, by: str
) -> None:
    queue = db.queue()
    db.sql("create table effects (a int)")
    one = node(db, concurrency=1, connections=1)
    left_open: list[Any] = []

    async def enter(connection: Any) -> None:
        left_open.append(connection.pipeline())
        await left_open[0].__aenter__()
        await connection.execute("insert into effects values (1)")
        if by == "raising":
            raise RuntimeError("with the pipeline on")

    if kind == "async":

        @one.on_event("a", max_retries=1)
        async def handle(event: Claimed, connection: Any) -> None:
            await enter(connection)

    else:

        @one.on_event("a", max_retries=1)
        def handle_plainly(event: Claimed, connection: Any) -> None:
            left_open.append(connection.pipeline())
            left_open[0].__enter__()
            connection.execute("insert into effects values (1)")
            if by == "raising":
                raise RuntimeError("with the pipeline on")

    on(one, kind, "b", lambda payload, connection: ("select 1", nothing))
    async with running(one):
        id = queue.publish("a").id
        await until(lambda: queue.event(id).status == "FAILED")
        other = queue.publish("b").id
        await until(lambda: queue.event(other).status == "COMPLETED")
    expected = "in a pipeline" if by == "returning" else "with the pipeline on"
    assert expected in (queue.dead_letter(id).error or "")
    assert db.sql("select count(*) from effects") == [(0,)]


@KINDS
async def test_a_session_that_cannot_be_made_as_it_was_is_replaced(
    db: Database, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = db.queue()
    monkeypatch.setattr(session_reset, "DISCARD_TEMP", b"select 1 / 0")
    one = node(db, concurrency=1, connections=1)
    seen: list[Any] = []
    on(one, kind, "a", lambda query, connection: (query, seen.append))
    deeds = ("create temp table left_over (a int)", "select to_regclass('left_over')::text")
    async with running(one):
        for done, query in enumerate(deeds, 1):
            queue.publish("a", query)
            await until(lambda n=done: queue.stats().completed == n)
            await settled(one)
    assert queue.stats().failed == 0
    assert seen == [None, [(None,)]]
