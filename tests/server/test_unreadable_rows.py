"""Whatever JSON somebody writes into the tables past the functions: the row alone is unreadable, and is said to be."""

import asyncio
from collections.abc import Iterator

import httpx
import pytest
from psycopg.errors import CheckViolation

from headrace import Claimed
from headrace.driver.run import take_turns_async
from headrace.server import upkeep
from tests.database import Database, Server
from tests.engine.every_function import Life, live
from tests.node.nodes import node, until
from tests.node.nodes import running as running_node
from tests.requirements import requirement
from tests.server.every_operation import REQUESTS, prepared
from tests.server.running import Running, running

DEEP = "[" * 2000 + "]" * 2000
VALUES = {"a number that no double holds": '{"a": 1e4400}', "2,000 levels": f'{{"a": {DEEP}}}'}
# Each column of JSON that is stored: which rows, and what tells of them.
COLUMNS: dict[str, tuple[str, str | None]] = {
    "namespaces.metadata": ("name = %(n)s", "GET /namespaces/{namespace}"),
    "queues.metadata": ("space = %(n)s and name = 'main'", "GET /queues/{namespace}/{queue}"),
    "queues.backoff": ("space = %(n)s and name = 'main'", "GET /queues/{namespace}/{queue}"),
    "nodes.metadata": ("namespace = %(home)s", "GET /nodes"),
    "scheduled_tasks.payload": ("namespace = %(home)s", "GET /schedules/{name}"),
    "scheduled_tasks.event": ("namespace = %(home)s", None),
    "events.payload": ("id = %(waiting)s", "GET /events/{id}"),
    "events.details": ("id = %(waiting)s", None),
    "events_carried.payload": ("true", None),
    "events_carried.details": ("true", None),
    "dead_letters.payload": ("namespace = %(home)s", "GET /dead-letters/{id}"),
    "dead_letters.details": ("namespace = %(home)s", None),
    "admin_log.details": ("namespace = %(home)s", "GET /admin-log"),
    "progress.value": ("true", None),
    "event_queue_state.events": ("true", None),
    "event_queue_state.queue_metrics": ("true", None),
    "event_queue_state.config": ("true", None),
}
REFUSED = {"queues.limits", "queues.fair_by"}  # the table checks their shape
NOT_TOLD = {"optional.declarations", "release.declarations"}
STREAMS = {"GET /events/stream", "GET /events/subscribe"}
LOOKING = [name for name in REQUESTS if name.startswith("GET ") and name not in STREAMS]


@pytest.fixture
def house(server: Server) -> Iterator[Running]:
    database = Database(server, server.create_database(template=Server.TEMPLATE))
    with running(database) as started:
        yield started
    database.close()
    server.drop_database(database.name)


def test_every_column_of_json_is_tried(db: Database) -> None:
    columns = db.sql(
        "select c.relname || '.' || a.attname from pg_attribute a join pg_class c on c.oid = a.attrelid"
        " where c.relnamespace = 'headrace'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition"
        " and a.atttypid in ('json'::regtype, 'jsonb'::regtype)"
    )
    assert {name for (name,) in columns} == COLUMNS.keys() | NOT_TOLD | REFUSED


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("column", sorted(REFUSED))
def test_what_would_stop_a_queue_is_refused(db: Database, column: str, value: str) -> None:
    with pytest.raises(CheckViolation):
        db.sql(f"update headrace.queues set {column.partition('.')[2]} = %s", [value])


def spoil(db: Database, column: str, life: Life, value: str) -> None:
    table, _, name = column.partition(".")
    [(home,)] = db.sql("select id from headrace.namespaces where name = %s", [life.namespace])
    known = {"n": life.namespace, "home": home, "waiting": life.waiting, "value": value}
    db.sql(f"update headrace.{table} set {name} = %(value)s where {COLUMNS[column][0]}", known)


def looked(client: httpx.Client, name: str, life: Life) -> httpx.Response:
    request = prepared(name, life)
    return client.request(request.method, request.target)


@requirement("G18")
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_nothing_that_is_stored_gives_an_error_of_the_server(house: Running, value: str) -> None:
    """One column at a time, and all of them stay: every look is answered, and another namespace notices nothing."""
    ours, theirs = live(house.db, "ours"), live(house.db, "theirs")
    token = house.db.queue().create_token("everything", ["admin"])
    headers = {"Authorization": f"Bearer {token}"}
    with house.client(headers=headers) as client:
        for column, (_, told_by) in COLUMNS.items():
            spoil(house.db, column, ours, value)
            answers = {name: looked(client, name, ours) for name in LOOKING}
            failed = {name: one.text for name, one in answers.items() if one.status_code >= 400}
            assert failed == {}, column
            if told_by is not None:
                assert '"unreadable"' in answers[told_by].text, column
        assert {looked(client, name, theirs).status_code for name in LOOKING} == {200}
        work = {"worker_id": "w", "types": ["waiting"], "limit": 50}
        claimed = client.post("/events/claim", params={"namespace": "ours"}, json=work)
        assert claimed.status_code == 200, claimed.text
        assert client.get("/metrics").status_code == 200


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_schedules_of_others_are_planned(house: Running, value: str) -> None:
    """The spoiled namespace is the first; the server plans for all of them."""
    db = house.db
    spoiled, _ = live(db, "a"), live(db, "z")
    for column in ("scheduled_tasks.payload", "scheduled_tasks.event", "namespaces.metadata"):
        spoil(db, column, spoiled, value)
    db.sql("update headrace.scheduled_tasks set timezone = 'Nowhere/At-all' where namespace = 2")
    db.sql("update headrace.scheduled_tasks set next_fires = '{}', due_at = null")
    directory = house.server.directory
    planning = take_turns_async(upkeep._plan(directory), directory.run, asyncio.sleep)
    asyncio.run_coroutine_threadsafe(planning, house.loop).result(60)
    rows = db.sql(
        "select n.name, cardinality(s.next_fires) > 0 from headrace.scheduled_tasks s"
        " join headrace.namespaces n on n.id = s.namespace where s.name = 'a task' order by 1"
    )
    assert rows[-1] == ("z", True)


@requirement("G18")
@pytest.mark.anyio
async def test_a_node_outlives_what_it_finds(db: Database) -> None:
    life = live(db, "ours")
    for column in COLUMNS:
        spoil(db, column, life, VALUES["a number that no double holds"])
    queue = db.queue(namespace="ours")
    one = node(db, namespace="ours")
    seen: list[int] = []

    @one.on_event("waiting")
    async def handle(event: Claimed) -> None:
        seen.append(event.id)
        assert event.headers is None

    async with running_node(one):
        await until(lambda: len(seen) == 29)
        await until(lambda: life.waiting in {letter.id for letter in queue.dead_letters()})
    assert life.waiting not in seen
