"""What is stored as JSON is checked by every function that stores it, through every surface."""

import json
from collections.abc import Iterator

import psycopg
import pytest

from headrace.install.migrate import migrate
from tests.database import Database, Server
from tests.engine.functions_helpers import Engine, refused
from tests.requirements import requirement

DEEP = "[" * 200 + "]" * 200
VALUES = {
    "a number that no double holds": '{"a": 1e4400}',
    "one that is too small": '{"a": 1e-4400}',
    "200 levels": f'{{"a": {DEEP}}}',
}
WHY = "range of a double|nested more than|a backoff is"
# Each surface that takes a document, as SQL; "claim" is one that is held.
SURFACES: dict[str, str] = {
    "publish": "select headrace.publish('default', jsonb_build_object('payload', %(v)s::jsonb))",
    "publish, headers": "select headrace.publish('default', jsonb_build_object('headers', %(v)s::jsonb))",
    "publish_one": "select headrace.publish_one('default', 't', %(v)s)",
    "publish_many": "select headrace.publish_many('default', 't', jsonb_build_array(%(v)s::jsonb))",
    "create_namespace": "select headrace.create_namespace('new', %(v)s)",
    "change_namespace": "select headrace.change_namespace('default', jsonb_build_object('metadata', %(v)s::jsonb))",
    "create_queue": "select headrace.create_queue('default', 'new', settings => jsonb_build_object('metadata', %(v)s::jsonb))",
    "change_queue": "select headrace.change_queue('default', 'main', jsonb_build_object('metadata', %(v)s::jsonb))",
    "change_queue, backoff": "select headrace.change_queue('default', 'main', jsonb_build_object('backoff', %(v)s::jsonb))",
    "register_node": "select headrace.register_node('default', 'n', gen_random_uuid(), metadata => %(v)s)",
    "schedule_task": "select headrace.schedule_task('default', 'n', '@daily', payload => %(v)s)",
    "schedule_task, headers": "select headrace.schedule_task('default', 'n', '@daily', event => jsonb_build_object('headers', %(v)s::jsonb))",
    "save_progress": "select headrace.save_progress('default', %(id)s, 1, %(v)s)",
    "finish": "select headrace.finish('default', 'main', array[%(id)s::bigint], '{1}', others => jsonb_build_object('1', "
    "jsonb_build_object('action', 'release', 'progress', %(v)s::jsonb)))",
    "core": "select core.append_event_log('default', 't', %(v)s, 'n')",
    "core, metadata": "select core.append_event_log('default', 't', '{}', 'n', null, %(v)s)",
    "pgmq.send": "select pgmq.send('q', %(v)s::jsonb)",
    "pgmq.send, headers": "select pgmq.send('q', '{}'::jsonb, %(v)s::jsonb)",
    "pgmq.send_batch": "select pgmq.send_batch('q', array[%(v)s::jsonb])",
    "pgmq.send to a namespace": "select pgmq.send('core_events_default', %(v)s::jsonb)",
}


@pytest.fixture(scope="module")
def house(server: Server) -> Iterator[Database]:
    database = Database(server, server.create_database(template=Server.TEMPLATE))
    migrate(database.connect(), add=["core", "pgmq"])
    database.sql("select pgmq.create('q')")
    yield database
    database.close()
    server.drop_database(database.name)


@requirement("G18")
@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_what_not_everybody_can_read_is_refused(house: Database, surface: str, value: str) -> None:
    engine = Engine(house)
    engine.publish({"type": "t"})
    claim = engine.claim(types=["t"], each=True)
    with pytest.raises(psycopg.Error, match=WHY) as caught:
        engine.connection.execute(SURFACES[surface], {"v": value, "id": claim.id})
    assert caught.value.sqlstate in ("QU001", "QU002")
    engine.end("complete", claim)
    engine.connection.close()


def test_what_everybody_can_read_is_taken(db: Database) -> None:
    metadata = json.dumps({"a": [1, 1.5, {"b": [[[[None]]]]}]})
    engine = Engine(db)
    engine.call("create_namespace", namespace="new", metadata=metadata)
    engine.call(
        "change_queue",
        namespace="new",
        queue="main",
        settings=json.dumps({"metadata": json.loads(metadata)}),
    )
    [queue] = engine.call("queue", namespace="new", queue="main")
    assert queue.metadata == json.loads(metadata)


def test_a_token_that_outlives_everybody_is_refused(db: Database) -> None:
    engine = Engine(db)
    for end in ("infinity", "9999-12-31", "200000-01-01"):
        with refused("QU001", "a thousand years"):
            engine.call("create_token", name="t", digest=b"n" * 32, scopes=["read"], expires_at=end)
