"""The database-backed event system (004) in SQL: the statements of its samples, in their order, with their names and values.

The extensions pgmq and pg_cron are Headrace's own functions here; see docs/documents/database-backed-event-system.md.
"""

from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

from headrace.install.migrate import migrate
from tests.database import Database
from tests.engine.functions_helpers import refused
from tests.engine.test_core_writing import REGISTER
from tests.requirements import requirement

QUEUE, DLQ = "core_events_myapp", "core_events_myapp_dlq"
PAYLOAD = {"userId": "123", "email": "user@example.com"}
ENVELOPE = {
    "namespace": "myapp",
    "eventType": "user.created",
    "payload": PAYLOAD,
    "emittedAt": "2025-01-31T12:00:00.123Z",
    "producerNodeId": "api-server-1",
}
LOG = (
    "select event_id, event_type, payload, producer_node_id, scheduled_task_id, metadata"
    " from core.event_log where namespace = 'myapp' order by event_id"
)
JOINED = (
    "select l.event_id, n.display_name from core.event_log l"
    " join core.nodes n on n.namespace = l.namespace and n.node_id = l.producer_node_id order by 1"
)


class System:
    """One session in which the document's statements are given."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.connection = db.connect()

    def __call__(self, statement: str, *values: Any) -> Any:
        cursor = self.connection.execute(statement, values)
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None

    def send(self, envelope: dict[str, Any], queue: str = QUEUE) -> int:
        return int(self("SELECT pgmq.send(%s, %s::jsonb)", queue, Jsonb(envelope)))

    def append(
        self,
        envelope: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        task: str | None = None,
    ) -> int:
        return int(
            self(
                "SELECT core.append_event_log(p_namespace => %s, p_event_type => %s, p_payload => %s,"
                " p_producer_node_id => %s, p_scheduled_task_id => %s, p_metadata => %s)",
                envelope["namespace"],
                envelope["eventType"],
                Jsonb(envelope["payload"]),
                envelope["producerNodeId"],
                task,
                None if metadata is None else Jsonb(metadata),
            )
        )

    def read(self, queue: str = QUEUE, vt: int = 30, qty: int = 10) -> list[Any]:
        return self.connection.execute(
            "SELECT * FROM pgmq.read(%s, %s, %s)", [queue, vt, qty]
        ).fetchall()

    def log(self) -> list[tuple[Any, ...]]:
        return self.db.sql(LOG)


@pytest.fixture
def system(db: Database) -> System:
    migrate(db.connect(), add=["core", "pgmq"])
    system = System(db)
    # Ensure namespace exists, ensure queues exist (main queue + DLQ)
    system("INSERT INTO core.namespaces(namespace) VALUES ('myapp')")
    assert system("SELECT core.queue_name_for_namespace('myapp')") == QUEUE
    assert system("SELECT core.dead_letter_queue_name_for_namespace('myapp')") == DLQ
    system("SELECT pgmq.create_queue(%s)", QUEUE)
    system("SELECT pgmq.create_queue(%s)", DLQ)
    return system


@requirement("PG-12", "PG-14", "PG-17", "PG-19", "PG-21", "PG-22")
def test_from_the_registration_to_the_acknowledgement(system: System, db: Database) -> None:
    system(REGISTER, "api-server-1", "myapp", "API Server", None, '{"role": "producer"}')
    system("SELECT core.touch_node_heartbeat('api-server-1')")

    message_id = system.send(ENVELOPE)
    event_id = system.append(ENVELOPE)
    assert event_id == message_id
    metadata = {"messageId": message_id, "redeliveryCount": 0, "emittedAt": ENVELOPE["emittedAt"]}
    assert system.log() == [(message_id, "user.created", PAYLOAD, "api-server-1", None, metadata)]

    [message] = system.read()
    assert (message[0], message[1]) == (message_id, 1)
    assert message[5] == {**ENVELOPE, "messageId": message_id, "redeliveryCount": 1}
    assert system.read() == [], "it is invisible to other consumers"
    db.advance(seconds=31)
    [again] = system.read()
    assert again[5]["redeliveryCount"] == again[1] == 2
    assert system("SELECT pgmq.delete(%s, %s)", QUEUE, message_id) is True
    assert system.read() == []
    assert db.sql(JOINED) == [(message_id, "API Server")]


class TestOneRowPerEvent:
    """An event that was sent is in the log: the call that appends it finds it there."""

    @requirement("PG-8", "PG-14")
    def test_the_metadata_may_name_the_message(self, system: System) -> None:
        message_id = system.send(ENVELOPE)
        metadata = {"messageId": message_id, "redeliveryCount": 0}
        assert [system.append(ENVELOPE, metadata) for _ in range(2)] == [message_id] * 2
        assert [row[0] for row in system.log()] == [message_id]

    @requirement("PG-14")
    def test_another_session_may_append(self, system: System, db: Database) -> None:
        message_id = system.send(ENVELOPE)
        assert System(db).append(ENVELOPE) == message_id
        assert [row[0] for row in system.log()] == [message_id]

    @requirement("PG-14")
    def test_each_of_several_that_are_alike_is_found_once(self, system: System) -> None:
        sent = [system.send(ENVELOPE) for _ in range(3)]
        assert [system.append(ENVELOPE) for _ in range(3)] == sent
        recorded = system.append(ENVELOPE)
        assert recorded not in sent, "nobody sent a fourth: this one is recorded"
        assert [row[0] for row in system.log()] == [*sent, recorded]

    def test_another_event_is_recorded(self, system: System) -> None:
        message_id = system.send(ENVELOPE)
        other = {**ENVELOPE, "payload": {"userId": "124"}}
        assert system.append(other) != message_id
        with refused("QU001", match=f"the messageId {message_id} names an event of another type"):
            system.append(other, {"messageId": message_id})
        assert len(system.log()) == 2
        assert system.append(other, {"messageId": message_id + 1000}) != message_id
        assert len(system.log()) == 3

    def test_of_a_send_that_is_rolled_back_nothing_is_found(self, system: System) -> None:
        with system.connection.transaction(force_rollback=True):
            sent = system.send(ENVELOPE)
        assert system.append(ENVELOPE) != sent
        assert len(system.log()) == 1

    def test_metadata_that_the_event_cannot_take_are_refused(self, system: System) -> None:
        message_id = system.send(ENVELOPE)
        with refused("QU001", match=f"the event {message_id} is in the log already"):
            system.append(ENVELOPE, {"messageId": message_id, "colour": "red"})
        assert [row[0] for row in system.log()] == [message_id]

    def test_a_scheduled_task_that_was_not_sent_is_refused(self, system: System) -> None:
        task, other = str(UUID(int=1)), str(UUID(int=2))
        message_id = system.send({**ENVELOPE, "scheduledTaskId": task})
        with refused("QU001", match=f"the event {message_id} .* without this scheduled task"):
            system.append(ENVELOPE, task=other)
        assert system.append(ENVELOPE, task=task) == message_id
        assert [row[0] for row in system.log()] == [message_id]

    def test_what_nobody_appends_is_forgotten(self, system: System, db: Database) -> None:
        system.send(ENVELOPE)
        db.advance(minutes=6)
        db.wait_for(
            lambda: db.sql("select kept_up from headrace.tick(upkeep => true)") == [(True,)]
        )
        assert db.sql("select from headrace.sent") == []


class TestEnvelopes:
    @requirement("PG-5", "PG-13")
    @pytest.mark.parametrize("task", ["a1b2c3d4e5f60718", "abc", "", "{}", "not a uuid " * 20])
    def test_the_log_stays_readable_whatever_a_task_is_called(
        self, system: System, db: Database, task: str
    ) -> None:
        message_id = system.send({**ENVELOPE, "scheduledTaskId": task})
        [published] = db.sql(
            "select unnest(ids) from headrace.publish('myapp', %s)",
            [Jsonb({"type": "a", "scheduled_task_id": task})],
        )[0]
        first, second = system.log()
        assert (first[0], first[4], first[5]["scheduledTaskId"]) == (message_id, None, task)
        assert (second[0], second[4], second[5]["scheduledTaskId"]) == (published, None, task)
        assert system.read()[0][5]["scheduledTaskId"] == task

    @pytest.mark.parametrize(
        "task", ["00000000-0000-0000-0000-00000000ABCD", "0000000000000000000000000000abcd"]
    )
    def test_an_id_that_is_one_is_in_its_column(self, system: System, task: str) -> None:
        system.send({**ENVELOPE, "scheduledTaskId": task})
        [row] = system.log()
        assert row[4] == UUID(int=0xABCD)
        assert "scheduledTaskId" not in row[5]

    @requirement("PG-13")
    def test_the_senders_time_is_kept_and_the_databases_is_beside_it(
        self, system: System, db: Database
    ) -> None:
        message_id = system.send(ENVELOPE)
        assert system.read()[0][5]["emittedAt"] == ENVELOPE["emittedAt"]
        fresh = "select emitted_at > now() - interval '1 hour', metadata ->> 'emittedAt' from core.event_log where namespace = 'myapp'"
        assert db.sql(fresh) == [(True, ENVELOPE["emittedAt"])]
        with db.queue(namespace="myapp") as queue:
            event = queue.event(message_id)
            assert event.emitted_at is not None
            assert event.emitted_at.isoformat() == "2025-01-31T12:00:00.123000+00:00"
            assert event.created_at > event.emitted_at

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("emittedAt", "yesterday"),
            ("emittedAt", 1706702400),
            ("emittedAt", "2025-02-31T12:00:00Z"),
            ("emittedAt", "2025-01-31T12:00:00"),
            ("producerNodeId", 7),
            ("producerNodeId", "!!!"),
            ("scheduledTaskId", 7),
        ],
    )
    def test_what_could_not_be_kept_is_refused(
        self, system: System, field: str, value: Any
    ) -> None:
        with refused("QU001", match=field):
            system.send({**ENVELOPE, field: value})
        assert system.log() == []

    def test_what_is_left_out_or_null_has_the_defaults(self, system: System) -> None:
        system.send({"eventType": "a", "payload": 1})
        system.send(
            {**ENVELOPE, "emittedAt": None, "producerNodeId": None, "scheduledTaskId": None}
        )
        for message in system.read():
            assert message[5]["namespace"] == "myapp"
            assert message[5]["emittedAt"].endswith("Z")
            assert message[5]["producerNodeId"] is None

    @requirement("PG-13", "PG-22")
    def test_the_producer_of_what_python_publishes_is_a_nodes_id_too(
        self, system: System, db: Database
    ) -> None:
        with db.queue(namespace="myapp") as queue:
            queue.publish("user.created", {}, producer="api server 1!")
            queue.publish("user.created", {})
        producers = [message[5]["producerNodeId"] for message in system.read()]
        assert producers == ["api-server-1", None]

    def test_its_producer_is_found_among_the_nodes(self, system: System, db: Database) -> None:
        system(REGISTER, "api server 1", "myapp", "API Server", None, "{}")
        message_id = system.send({**ENVELOPE, "producerNodeId": "api server 1"})
        assert system.append({**ENVELOPE, "producerNodeId": "api server 1"}) == message_id
        recorded = system.append(
            {**ENVELOPE, "eventType": "user.seen", "producerNodeId": "api server 1"}
        )
        assert db.sql(JOINED) == [(message_id, "API Server"), (recorded, "API Server")]


class TestDeadLetters:
    def letter(self, system: System, **more: Any) -> dict[str, Any]:
        system.send(ENVELOPE)
        [message] = system.read()
        return {
            "originalEvent": message[5],
            "reason": "Handler error",
            "error": "Error: no",
            **more,
        }

    @requirement("PG-25", "PG-26")
    def test_a_consumer_moves_a_message_there_and_its_time_is_kept(self, system: System) -> None:
        letter = self.letter(system, failedAt="2025-01-31T12:00:01.456Z")
        message_id = system.send(letter, DLQ)
        assert system("SELECT pgmq.delete(%s, %s)", QUEUE, message_id) is False
        [dead] = system.read(DLQ)
        assert dead[5] == letter
        again = "SELECT message FROM pgmq.set_vt(%s, %s, 0)"
        assert system(again, DLQ, message_id) == letter

    def test_a_time_that_is_none_is_refused(self, system: System) -> None:
        letter = self.letter(system, failedAt="just now")
        with refused("QU001", match="failedAt"):
            system.send(letter, DLQ)
        assert system.read(DLQ) == []

    @requirement("PG-26")
    def test_it_is_replayed_by_sending_its_event_again(self, system: System) -> None:
        letter = self.letter(system, failedAt="2025-01-31T12:00:01.456Z")
        first = system.send(letter, DLQ)
        [dead] = system.read(DLQ)
        again = system.send(dead[5]["originalEvent"])
        [message] = system.read()
        assert (message[0], message[1]) == (again, 1)
        assert again != first
        assert message[5] == {**ENVELOPE, "messageId": again, "redeliveryCount": 1}


@requirement("PG-6", "PG-11", "PG-15", "PG-27", "PG-28")
def test_a_scheduled_task_from_its_creation_to_its_deletion(system: System, db: Database) -> None:
    task = UUID("5a1f2e3d-0000-4000-8000-000000000001")
    system(
        "INSERT INTO core.scheduled_tasks(task_id, namespace, name, cron_expression, event_type, payload, timezone, active)"
        " VALUES (%s, 'myapp', 'daily-cleanup', '0 2 * * *', 'maintenance.cleanup', '{\"retentionDays\": 30}', 'UTC', TRUE)",
        task,
    )
    message_id = system("SELECT core.run_scheduled_task(%s)", task)
    [row] = system.log()
    assert row[:5] == (message_id, "maintenance.cleanup", {"retentionDays": 30}, "scheduler", task)
    [message] = system.read()
    assert (message[5]["producerNodeId"], message[5]["scheduledTaskId"]) == ("scheduler", str(task))
    system("UPDATE core.scheduled_tasks SET active = FALSE WHERE task_id = %s", task)
    assert system("SELECT core.run_scheduled_task(%s)", task) is None
    system("DELETE FROM core.scheduled_tasks WHERE task_id = %s", task)
    assert db.sql("select from core.scheduled_tasks") == []
    assert len(system.log()) == 1


def test_a_task_of_sixteen_characters_has_no_row(system: System) -> None:
    """task_id is a UUID in the document's table, and 16 characters of hex are none: PostgreSQL says so."""
    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        system("SELECT core.run_scheduled_task('a1b2c3d4e5f60718')")
