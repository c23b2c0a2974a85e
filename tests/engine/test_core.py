"""The schema core: the documented tables, as views, and the documented functions."""

from collections.abc import Iterator
from importlib import resources
from itertools import count
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

from headrace.install.migrate import migrate
from tests.database import Database, Server
from tests.engine.functions_helpers import refused
from tests.requirements import requirement

COLUMNS = """
select column_name, data_type from information_schema.columns
where table_schema = 'core' and table_name = %s order by ordinal_position
"""
APPEND = "select core.append_event_log(p_namespace => %s, p_event_type => %s, p_payload => %s, p_producer_node_id => %s"
NUMBERS = count(1)


@pytest.fixture(scope="module")
def core(server: Server) -> Iterator[Database]:
    """A database that its tests share: each has a namespace of its own."""
    database = Database(server, server.create_database(template=Server.TEMPLATE))
    migrate(database.connect(), add=["core"])
    yield database
    database.close()
    server.drop_database(database.name)


@pytest.fixture
def namespace(core: Database) -> str:
    name = f"n{next(NUMBERS)}"
    core.sql("select headrace.create_namespace(%s, %s)", [name, Jsonb({"of": "us"})])
    return name


def columns(core: Database, table: str) -> list[tuple[str, str]]:
    return core.sql(COLUMNS, [table])


TIME = "timestamp with time zone"


class TestTables:
    @requirement("PG-3")
    def test_namespaces(self, core: Database, namespace: str) -> None:
        assert columns(core, "namespaces") == [
            ("namespace", "text"),
            ("created_at", TIME),
            ("metadata", "jsonb"),
        ]
        [(created, metadata)] = core.sql(
            "select created_at <= headrace._now(), metadata from core.namespaces where namespace = %s",
            [namespace],
        )
        assert (created, metadata) == (True, {"of": "us"})
        core.sql("select headrace.delete_namespace(%s)", [namespace])
        assert core.sql("select * from core.namespaces where namespace = %s", [namespace]) == []

    @requirement("PG-4")
    def test_nodes(self, core: Database, namespace: str) -> None:
        assert columns(core, "nodes") == [
            ("node_id", "text"),
            ("namespace", "text"),
            ("display_name", "text"),
            ("description", "text"),
            ("metadata", "jsonb"),
            ("registered_at", TIME),
            ("last_heartbeat", TIME),
        ]
        core.sql(
            "select headrace.register_node(%s, 'api-1', gen_random_uuid(), 'API', 'The API', %s)",
            [namespace, Jsonb({"role": "producer"})],
        )
        row = core.sql(
            "select node_id, display_name, description, metadata, registered_at = last_heartbeat"
            " from core.nodes where namespace = %s",
            [namespace],
        )
        assert row == [("api-1", "API", "The API", {"role": "producer"}, True)]

    @requirement("PG-5", "PG-14", "PG-31")
    def test_the_event_log_has_every_event_as_it_was_emitted(
        self, core: Database, namespace: str
    ) -> None:
        assert columns(core, "event_log") == [
            ("event_id", "bigint"),
            ("namespace", "text"),
            ("event_type", "text"),
            ("payload", "jsonb"),
            ("emitted_at", TIME),
            ("producer_node_id", "text"),
            ("scheduled_task_id", "uuid"),
            ("metadata", "jsonb"),
        ]
        event = {"type": "user.created", "payload": {"n": 1}, "producer": "api-1", "title": "New"}
        [(ids,)] = core.sql("select ids from headrace.publish(%s, %s)", [namespace, Jsonb([event])])
        core.sql("select headrace.schedule_task(%s, 'nightly', '0 2 * * *', 'clean')", [namespace])
        core.sql("select headrace.run_schedule(%s, 'nightly')", [namespace])
        [(task,)] = core.sql(
            "select task_id from core.scheduled_tasks where namespace = %s", [namespace]
        )
        emitted, scheduled = core.sql(
            "select event_id, event_type, payload, emitted_at <= headrace._now(), producer_node_id,"
            " scheduled_task_id, metadata from core.event_log where namespace = %s order by event_id",
            [namespace],
        )
        metadata = {"messageId": ids[0], "redeliveryCount": 0, "title": "New"}
        assert emitted == (ids[0], "user.created", {"n": 1}, True, "api-1", None, metadata)
        assert (scheduled[1], scheduled[4], scheduled[5]) == ("clean", "scheduler", task)

    @requirement("PG-6", "PG-28")
    def test_scheduled_tasks(self, core: Database, namespace: str) -> None:
        assert columns(core, "scheduled_tasks") == [
            ("task_id", "uuid"),
            ("namespace", "text"),
            ("job_id", "integer"),
            ("name", "text"),
            ("cron_expression", "text"),
            ("event_type", "text"),
            ("payload", "jsonb"),
            ("timezone", "text"),
            ("active", "boolean"),
            ("created_at", TIME),
            ("updated_at", TIME),
        ]
        core.sql(
            "select headrace.schedule_task(%s, 'nightly', '0 2 * * *', 'clean', '{\"days\": 30}', 'Europe/Berlin')",
            [namespace],
        )
        listed = "select name, cron_expression, event_type, payload, timezone, active, job_id from core.scheduled_tasks where namespace = %s"
        task = ("nightly", "0 2 * * *", "clean", {"days": 30}, "Europe/Berlin")
        assert core.sql(listed, [namespace]) == [(*task, True, None)]
        core.sql("select headrace.pause_schedule(%s, 'nightly')", [namespace])
        assert core.sql(listed, [namespace]) == [(*task, False, None)]
        core.sql("select headrace.remove_schedule(%s, 'nightly')", [namespace])
        assert core.sql(listed, [namespace]) == []


@requirement("PG-5")
@pytest.mark.parametrize(
    "name", ["api server 1!", "--a--", "É", "..", "." * 120 + "a", "é" * 300 + "b", "a.b:c_d"]
)
def test_who_emitted_an_event_is_found_among_the_nodes(
    core: Database, namespace: str, name: str
) -> None:
    [(plain,)] = core.sql("select headrace._node_name(%s)", [name])
    if plain is not None:
        core.sql("select headrace.register_node(%s, %s, gen_random_uuid())", [namespace, name])
    with core.queue(namespace=namespace) as queue:
        queue.publish("paid", producer=name)
    core.sql(
        "select headrace.publish(%s, %s)", [namespace, Jsonb([{"type": "paid", "producer": name}])]
    )
    joined = (
        "select l.producer_node_id, n.node_id, coalesce(l.metadata ->> 'producer', l.producer_node_id)"
        " from core.event_log l left join core.nodes n"
        " on (n.namespace, n.node_id) = (l.namespace, l.producer_node_id) where l.namespace = %s"
    )
    assert core.sql(joined, [namespace]) == [(plain, plain, name)] * 2


@requirement("PG-7")
def test_touch_node_heartbeat(core: Database, namespace: str) -> None:
    core.sql("select headrace.register_node(%s, 'api 1', gen_random_uuid())", [namespace])
    core.advance(seconds=100)
    core.sql("select core.touch_node_heartbeat(p_node_id => 'api 1')")
    core.sql("select core.touch_node_heartbeat('somebody else')")
    assert core.sql(
        "select last_heartbeat - registered_at >= interval '100 seconds' from core.nodes where namespace = %s",
        [namespace],
    ) == [(True,)]


class TestAppendEventLog:
    @requirement("PG-8")
    def test_it_records_an_event_and_gives_its_number(self, core: Database, namespace: str) -> None:
        task = UUID(int=7)
        [(event,)] = core.sql(
            APPEND + ", p_scheduled_task_id => %s, p_metadata => %s)",
            [namespace, "paid", Jsonb({"n": 1}), "api-1", task, Jsonb({"messageId": 3})],
        )
        row = core.sql(
            "select event_type, payload, producer_node_id, scheduled_task_id, metadata"
            " from core.event_log where event_id = %s and namespace = %s",
            [event, namespace],
        )
        assert row == [("paid", {"n": 1}, "api-1", task, {"messageId": 3})]

    def test_the_last_two_may_be_left_out(self, core: Database, namespace: str) -> None:
        core.sql(APPEND + ")", [namespace, "paid", Jsonb({}), "api-1"])
        row = "select scheduled_task_id, metadata from core.event_log where namespace = %s"
        assert core.sql(row, [namespace]) == [(None, {})]

    @requirement("PG-8")
    def test_nobody_gets_it_neither_today_nor_a_queue_that_begins_in_the_past(
        self, core: Database, namespace: str
    ) -> None:
        [(recorded,)] = core.sql(APPEND + ")", [namespace, "paid", Jsonb({}), "api-1"])
        [(ids,)] = core.sql(
            'select ids from headrace.publish(%s, \'[{"type": "paid"}]\')', [namespace]
        )
        core.sql(
            "select headrace.create_queue(%s, 'late', since => headrace._now() - interval '1 hour')",
            [namespace],
        )
        core.wait_for(lambda: not core.sql("select more from headrace.tick()")[0][0])
        for queue in ("main", "late"):
            claimed = "select id from headrace.poll(%s, queue => %s, max_events => 9)"
            assert core.sql(claimed, [namespace, queue]) == [(ids[0],)]
        with core.queue(namespace=namespace) as reader:
            assert [event.id for event in reader.replay()] == ids
        assert core.sql("select status from headrace.event(%s, %s)", [namespace, recorded]) == [
            (None,)
        ]

    def test_whoever_reads_events_reads_it_too(self, core: Database, namespace: str) -> None:
        [(event,)] = core.sql(
            APPEND + ", p_metadata => '{\"a\": 1}')", [namespace, "paid", Jsonb({"n": 1}), "api-1"]
        )
        with core.queue(namespace=namespace) as queue:
            assert (queue.event(event).payload, queue.event(event).headers) == ({"n": 1}, {"a": 1})
            assert [entry.action for entry in queue.log(event)] == ["EMITTED"]

    def test_it_is_there_if_the_caller_commits(self, core: Database, namespace: str) -> None:
        connection = core.connect()
        with connection.transaction(force_rollback=True):
            connection.execute(APPEND + ")", [namespace, "paid", Jsonb({}), "api-1"])
        assert core.sql("select * from core.event_log where namespace = %s", [namespace]) == []

    @pytest.mark.parametrize(
        ("state", "type", "payload", "metadata"),
        [
            ("QU001", "a,b", "{}", "{}"),
            ("QU001", "a", "{}", "[]"),
            ("QU002", "a", '{"n": 1e4400}', "{}"),
            ("QU002", "a", "{}", '{"n": 1e4400}'),
        ],
    )
    def test_what_publish_refuses_is_refused(
        self, core: Database, namespace: str, state: str, type: str, payload: str, metadata: str
    ) -> None:
        with refused(state):
            core.sql(
                APPEND + ", p_metadata => %s::jsonb)", [namespace, type, payload, "x", metadata]
            )

    def published(self, core: Database, namespace: str, **said: Any) -> int:
        event = {"type": "paid", "payload": {"n": 1}, "producer": "api-1", **said}
        [(ids,)] = core.sql("select ids from headrace.publish(%s, %s)", [namespace, Jsonb([event])])
        return int(ids[0])

    def append(self, core: Database, namespace: str, id: int, **said: Any) -> int:
        said = {"type": "paid", "payload": {"n": 1}, "producer": "api-1", "task": None, **said}
        [(event,)] = core.sql(
            APPEND + ", p_scheduled_task_id => %s, p_metadata => %s)",
            [namespace, said["type"], Jsonb(said["payload"]), said["producer"], said["task"], Jsonb({"messageId": id})],
        )  # fmt: skip
        return int(event)

    @pytest.mark.parametrize("other", [{"type": "b"}, {"payload": {"n": 2}}, {"producer": "b"}])
    @requirement("PG-8")
    def test_a_number_of_another_event_is_refused(
        self, core: Database, namespace: str, other: dict[str, Any]
    ) -> None:
        event = self.published(core, namespace)
        with refused("QU001", f"the messageId {event} names an event of another"):
            self.append(core, namespace, event, **other)
        assert self.append(core, namespace, event) == event
        logged = "select event_id from core.event_log where namespace = %s"
        assert core.sql(logged, [namespace]) == [(event,)]

    @requirement("PG-8")
    def test_a_scheduled_task_that_the_event_does_not_have_is_refused(
        self, core: Database, namespace: str
    ) -> None:
        task = UUID(int=16)
        plain = self.published(core, namespace)
        fired = self.published(core, namespace, scheduled_task_id=str(task).upper())
        with refused("QU001", "without this scheduled task"):
            self.append(core, namespace, plain, task=task)
        with refused("QU001", "without this scheduled task"):
            self.append(core, namespace, fired, task=UUID(int=17))
        assert self.append(core, namespace, fired, task=task) == fired
        assert self.append(core, namespace, fired) == fired

    @requirement("PG-8")
    def test_a_producer_is_found_whatever_is_plain_in_it(
        self, core: Database, namespace: str
    ) -> None:
        event = self.published(core, namespace, producer="api 1!")
        assert self.append(core, namespace, event, producer="api 1!") == event

    def test_a_namespace_must_be_there(self, core: Database) -> None:
        with refused("QU010"):
            core.sql(APPEND + ")", ["nowhere", "a", Jsonb({}), "x"])


@requirement("PG-9", "PG-10")
def test_the_names_of_queues(core: Database) -> None:
    names = (
        "select core.queue_name_for_namespace(p_namespace => %s),"
        " core.dead_letter_queue_name_for_namespace(p_namespace => %s)"
    )
    assert core.sql(names, ["demo", "demo"]) == [("core_events_demo", "core_events_demo_dlq")]
    assert core.sql(names, ["a-b", "a-b"]) == [("core_events_a_b", "core_events_a_b_dlq")]


@requirement("PG-11", "PG-15")
def test_run_scheduled_task(core: Database, namespace: str) -> None:
    core.sql(
        "select headrace.schedule_task(%s, 'nightly', '0 2 * * *', 'clean', '{\"days\": 30}')",
        [namespace],
    )
    [(task, before)] = core.sql(
        "select task_id, updated_at from core.scheduled_tasks where namespace = %s", [namespace]
    )
    [(event,)] = core.sql("select core.run_scheduled_task(p_task_id => %s)", [task])
    assert core.sql(
        "select event_id, event_type, payload, producer_node_id, scheduled_task_id"
        " from core.event_log where namespace = %s",
        [namespace],
    ) == [(event, "clean", {"days": 30}, "scheduler", task)]
    assert core.sql("select id from headrace.poll(%s)", [namespace]) == [(event,)]
    after = "select updated_at > %s from core.scheduled_tasks where task_id = %s"
    assert core.sql(after, [before, task]) == [(True,)]
    core.sql("select headrace.pause_schedule(%s, 'nightly')", [namespace])
    assert core.sql("select core.run_scheduled_task(%s)", [task]) == [(None,)]


@pytest.mark.parametrize(
    ("role", "may", "may_not"),
    [
        ("headrace_publisher", "append_event_log", "touch_node_heartbeat"),
        ("headrace_worker", "touch_node_heartbeat", "run_scheduled_task"),
        ("headrace_admin", "run_scheduled_task", None),
        ("headrace_reader", "queue_name_for_namespace", "append_event_log"),
    ],
)
def test_each_role_may_do_its_part(
    core: Database, role: str, may: str, may_not: str | None
) -> None:
    privilege = "select has_function_privilege(%s, oid, 'execute') from pg_proc where pronamespace = 'core'::regnamespace and proname = %s"
    assert core.sql(privilege, [role, may]) == [(True,)]
    if may_not is not None:
        assert core.sql(privilege, [role, may_not]) == [(False,)]


def test_a_reader_reads_the_views_and_writes_nothing(core: Database) -> None:
    reader = core.connect()
    reader.execute("set role headrace_reader")
    for view in ("namespaces", "nodes", "event_log", "scheduled_tasks"):
        reader.execute(f"select * from core.{view}")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        reader.execute("create table core.mine ()")


def test_core_judges_who_is_bound_as_headrace_does() -> None:
    """A view of a part may not stand on a view of headrace, so there are two of one."""
    sources = resources.files("headrace") / "sql"
    ours, cores = (
        (sources / path / "0_admission.sql").read_text().split(".admission as\n")[1]
        for path in ("views", "parts/core")
    )
    assert ours == cores
