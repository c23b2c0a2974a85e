"""What is written into the documented tables of the schema core: it goes through the engine, or is refused with a sentence."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from headrace.install.migrate import migrate
from tests.database import Database, Server
from tests.engine.functions_helpers import refused
from tests.requirements import requirement

# As the document prints it, with psycopg's placeholders.
REGISTER = """
INSERT INTO core.nodes(node_id, namespace, display_name, description, metadata)
VALUES (%s, %s, %s, %s, %s::jsonb)
ON CONFLICT (node_id) DO UPDATE
  SET display_name = EXCLUDED.display_name,
      description = EXCLUDED.description,
      metadata = EXCLUDED.metadata,
      last_heartbeat = now()
"""
NODES = (
    "select node_id, namespace, display_name, description, metadata from core.nodes order by 2, 1"
)
TASKS = (
    "select name, cron_expression, event_type, payload, timezone, active from core.scheduled_tasks"
)


@pytest.fixture(scope="module")
def _shared(server: Server) -> Iterator[Database]:
    database = Database(server, server.create_database(template=Server.TEMPLATE))
    migrate(database.connect(), add=["core"])
    yield database
    database.close()
    server.drop_database(database.name)


@pytest.fixture
def core(_shared: Database) -> Iterator[Database]:
    yield _shared
    _shared.sql("delete from headrace.scheduled_tasks")
    _shared.sql("delete from headrace.nodes")
    for (name,) in _shared.sql("select name from headrace.namespaces where name <> 'default'"):
        _shared.sql("select headrace.delete_namespace(%s, with_deliveries => true)", [name])
    for (role,) in _shared.sql(
        "select role::text from headrace.bound_roles() where role is not null"
    ):
        _shared.sql("select headrace.unbind_role(%s)", [role])


def register(core: Database, node_id: str | None, namespace: str = "default", **said: Any) -> None:
    core.connect().execute(
        REGISTER,
        [node_id, namespace, said.get("name"), said.get("about"), Jsonb(said.get("metadata", {}))],
    )


class TestNodes:
    @requirement("PG-4", "PG-22")
    def test_the_printed_registration_registers_a_node(self, core: Database) -> None:
        register(core, "api-server-1", name="API Server", metadata={"role": "producer"})
        assert core.sql(NODES) == [
            ("api-server-1", "default", "API Server", None, {"role": "producer"})
        ]
        [listed] = core.queue().nodes()
        assert (listed.node_id, listed.alive, listed.handles) == ("api-server-1", True, ())

    @requirement("PG-22")
    def test_again_it_says_anew_who_it_is_and_that_it_lives(self, core: Database) -> None:
        register(core, "api-server-1", name="API Server", metadata={"role": "producer"})
        [before] = core.queue().nodes()
        core.advance(seconds=100)
        register(core, "api-server-1", name="Another", about="Answers", metadata={"n": 1})
        [node] = core.queue().nodes()
        assert (node.display_name, node.description, node.metadata) == (
            "Another",
            "Answers",
            {"n": 1},
        )
        assert node.registered_at == before.registered_at
        assert node.last_heartbeat > before.last_heartbeat
        assert node.alive

    @requirement("PG-22")
    def test_a_process_that_has_the_id_keeps_it(self, core: Database) -> None:
        instance = uuid4()
        core.sql(
            "select headrace.register_node('default', 'api-1', %s, handles => '{user.*}', worker => 'host:1')",
            [instance],
        )
        register(core, "api-1", name="API")
        [node] = core.queue().nodes()
        assert (node.instance, node.handles, node.worker_id) == (
            str(instance),
            ("user.*",),
            "host:1",
        )
        assert node.display_name == "API"

    def test_an_id_is_made_plain_and_two_namespaces_may_have_the_same(self, core: Database) -> None:
        core.sql("select headrace.create_namespace('other')")
        register(core, "api server 1")
        register(core, "api server 1", "other")
        assert [row[:2] for row in core.sql(NODES)] == [
            ("api-server-1", "default"),
            ("api-server-1", "other"),
        ]

    def test_a_plain_insert_and_one_of_several_nodes_do_the_same(self, core: Database) -> None:
        core.sql(
            "insert into core.nodes (node_id, namespace) values ('a', 'default'), ('b', 'default')"
        )
        core.sql("insert into core.nodes (node_id, namespace) values ('a', 'default')")
        assert [row[:2] for row in core.sql(NODES)] == [("a", "default"), ("b", "default")]

    @pytest.mark.parametrize(
        "clause", ["", "(node_id)", "(namespace, node_id)", "(node_id, namespace)"]
    )
    @requirement("PG-4")
    def test_a_conflict_may_be_named_by_what_is_unique_in_the_document(
        self, core: Database, clause: str
    ) -> None:
        insert = "insert into core.nodes (node_id, namespace, display_name) values ('a', 'default', %s) on conflict"
        for name in ("one", "two"):
            core.sql(f"{insert} {clause} do nothing", [name])
            assert [row[2] for row in core.sql(NODES)] == [name]
        if clause:
            core.sql(f"{insert} {clause} do update set display_name = 'four'", ["three"])
            assert [row[2] for row in core.sql(NODES)] == ["three"]
        core.sql(f"{insert} {clause} do nothing returning node_id", ["five"])

    def test_nothing_is_stored_besides_the_engines_row(self, core: Database) -> None:
        register(core, "a")
        assert core.sql("select from only core._registry") == []

    @pytest.mark.parametrize(
        ("state", "node", "namespace"),
        [
            ("QU001", "!!!", "default"),
            ("QU001", "..", "default"),
            ("QU001", "ÄÖ", "default"),
            ("QU001", None, "default"),
            ("QU010", "a", "nowhere"),
        ],
    )
    def test_what_the_engine_refuses_is_refused(
        self, core: Database, state: str, node: str | None, namespace: str
    ) -> None:
        with refused(state):
            register(core, node, namespace)
        assert core.sql(NODES) == []

    def test_two_that_register_one_id_in_two_namespaces_do_not_wait(self, core: Database) -> None:
        core.sql("select headrace.create_namespace('other')")
        with core.connect() as one, one.transaction():
            one.execute(REGISTER, ["a", "default", None, None, "{}"])
            with core.connect() as other:
                other.execute("set lock_timeout = '5s'")
                other.execute(REGISTER, ["a", "other", None, None, "{}"])
        assert len(core.sql(NODES)) == 2

    @requirement("PG-7")
    def test_an_update_of_the_heartbeat_is_one(self, core: Database) -> None:
        register(core, "a")
        core.sql(
            "update headrace.nodes set last_heartbeat = '2001-01-01', stopped_at = '2001-01-02'"
        )
        core.sql("update core.nodes set last_heartbeat = now() where node_id = 'a'")
        assert core.queue().nodes()[0].alive

    @pytest.mark.parametrize(
        ("statement", "sentence"),
        [
            ("update core.nodes set last_heartbeat = '2001-01-01'", "last_heartbeat is the database's time"),
            ("update core.nodes set last_heartbeat = null", "last_heartbeat is the database's time"),
            ("update core.nodes set display_name = 'b'", "sets last_heartbeat alone"),
            ("update core.nodes set node_id = 'b'", "sets last_heartbeat alone"),
            ("delete from core.nodes", "a node is not deleted"),
            ("insert into core.nodes (node_id, namespace, registered_at) values ('b', 'default', now())", "leave them out"),
        ],
    )  # fmt: skip
    def test_what_cannot_be_done_is_said_in_a_sentence(
        self, core: Database, statement: str, sentence: str
    ) -> None:
        register(core, "a")
        before = core.sql("select * from core.nodes")
        with refused("QU001", match=sentence):
            core.sql(statement)
        assert core.sql("select * from core.nodes") == before


class TestNamespaces:
    @requirement("PG-3", "PG-21")
    def test_an_insert_makes_a_namespace_that_works(self, core: Database) -> None:
        made = "insert into core.namespaces (namespace, metadata) values ('myapp', '{\"a\": 1}') returning namespace, metadata, created_at is not null"
        assert core.sql(made) == [("myapp", {"a": 1}, True)]
        with core.queue(namespace="myapp") as queue:
            event = queue.publish("user.created", {"userId": "123"})
            [claimed] = queue.poll()
            assert (claimed.id, queue.event(event.id).status) == (event.id, "PROCESSING")
            assert [one.name for one in queue.queues()] == ["main"]

    def test_one_that_is_there_stays_as_it_is(self, core: Database) -> None:
        core.sql("select headrace.create_namespace('myapp', '{\"a\": 1}')")
        insert = "insert into core.namespaces (namespace) values ('myapp')"
        assert core.sql(f"{insert} returning namespace") == []
        core.sql(f"{insert} on conflict do nothing")
        assert core.sql("select metadata from core.namespaces where namespace = 'myapp'") == [
            ({"a": 1},)
        ]

    def test_its_metadata_change_and_it_is_deleted_if_nothing_is_unfinished(
        self, core: Database
    ) -> None:
        core.sql("insert into core.namespaces (namespace) values ('myapp')")
        core.sql("update core.namespaces set metadata = '{\"b\": 2}' where namespace = 'myapp'")
        assert core.sql("select metadata from core.namespaces where namespace = 'myapp'") == [
            ({"b": 2},)
        ]
        event = '{"type": "a"}'
        core.sql("select headrace.publish('myapp', %s)", [event])
        with refused("QU054"):
            core.sql("delete from core.namespaces where namespace = 'myapp'")
        core.sql("select headrace.purge('myapp', 'main', 'ready')")
        core.sql("delete from core.namespaces where namespace = 'myapp'")
        assert core.sql("select from core.namespaces where namespace = 'myapp'") == []
        assert core.sql("select from headrace.queues where space = 'myapp'") == []

    @pytest.mark.parametrize(
        ("statement", "sentence"),
        [
            ("insert into core.namespaces (namespace) values ('')", "needs a name"),
            ("insert into core.namespaces (namespace) values (null)", "needs a name"),
            ("insert into core.namespaces (namespace, metadata) values ('b', '[]')", "JSON object"),
            (
                "insert into core.namespaces (namespace, created_at) values ('b', now())",
                "leave it out",
            ),
            ("update core.namespaces set namespace = 'b'", "keeps its name"),
        ],
    )
    def test_what_cannot_be_done_is_said_in_a_sentence(
        self, core: Database, statement: str, sentence: str
    ) -> None:
        with refused("QU001", match=sentence):
            core.sql(statement)
        assert core.sql("select namespace from core.namespaces") == [("default",)]


class TestScheduledTasks:
    TASK = UUID(int=16)

    def insert(self, core: Database, **columns: Any) -> None:
        said = {
            "namespace": "default",
            "name": "daily-cleanup",
            "cron_expression": "0 2 * * *",
            "event_type": "maintenance.cleanup",
            "payload": Jsonb({"retentionDays": 30}),
            **columns,
        }
        places = ", ".join(["%s"] * len(said))
        core.sql(
            f"insert into core.scheduled_tasks ({', '.join(said)}) values ({places})",
            [*said.values()],
        )

    @requirement("PG-6", "PG-27")
    def test_an_insert_schedules_a_task_under_its_id(self, core: Database) -> None:
        self.insert(core, task_id=self.TASK, timezone="Europe/Berlin", active=True)
        assert core.sql(TASKS) == [
            ("daily-cleanup", "0 2 * * *", "maintenance.cleanup", {"retentionDays": 30}, "Europe/Berlin", True)
        ]  # fmt: skip
        [(event,)] = core.sql("select core.run_scheduled_task(%s)", [self.TASK])
        logged = "select event_type, scheduled_task_id from core.event_log where event_id = %s"
        assert core.sql(logged, [event]) == [("maintenance.cleanup", self.TASK)]

    @requirement("PG-28")
    def test_it_is_deactivated_and_activated(self, core: Database) -> None:
        self.insert(core, task_id=self.TASK)
        core.sql("UPDATE core.scheduled_tasks SET active = FALSE WHERE task_id = %s", [self.TASK])
        assert [task.active for task in core.queue().schedules()] == [False]
        assert core.sql("select core.run_scheduled_task(%s)", [self.TASK]) == [(None,)]
        core.sql(
            "UPDATE core.scheduled_tasks SET active = TRUE, updated_at = now() WHERE task_id = %s",
            [self.TASK],
        )
        assert [task.active for task in core.queue().schedules()] == [True]
        actions = [one.action for one in core.queue().admin_log(limit=3)]
        assert actions == ["resume_schedule", "pause_schedule", "schedule_task"]

    @requirement("PG-28")
    def test_it_is_changed_and_deleted(self, core: Database) -> None:
        self.insert(core, active=False)
        core.sql("update core.scheduled_tasks set cron_expression = '@hourly', payload = '{}'")
        [row] = core.sql(TASKS)
        assert (row[1], row[3], row[5]) == ("@hourly", {}, False)
        core.sql("delete from core.scheduled_tasks")
        assert core.queue().schedules() == []

    def test_a_name_and_an_id_are_there_once(self, core: Database) -> None:
        self.insert(core, task_id=self.TASK)
        with refused("23505"):
            self.insert(core)
        with refused("23505"):
            self.insert(core, name="another", task_id=self.TASK)
        assert len(core.sql(TASKS)) == 1

    @pytest.mark.parametrize(
        ("columns", "sentence"),
        [
            ({"job_id": 7}, "job_id of core.scheduled_tasks is Headrace's"),
            ({"created_at": "2001-01-01"}, "leave them out"),
            ({"timezone": "Europe/Nowhere"}, "zone"),
            ({"cron_expression": "99 99 * * *"}, "the minute of a cron expression is 0 to 59"),
            ({"name": ""}, "name"),
        ],
    )
    def test_an_insert_that_cannot_be_is_refused(
        self, core: Database, columns: dict[str, Any], sentence: str
    ) -> None:
        with refused("QU001", match=sentence):
            self.insert(core, **columns)
        assert core.sql(TASKS) == []

    @pytest.mark.parametrize("change", ["name = 'b'", "job_id = 7", "cron_expression = '0 99 * * *'", "active = null", "updated_at = '2001-01-01'", "task_id = gen_random_uuid()"])  # fmt: skip
    def test_an_update_that_cannot_be_is_refused(self, core: Database, change: str) -> None:
        self.insert(core)
        before = core.sql("select * from core.scheduled_tasks")
        with refused("QU001"):
            core.sql(f"update core.scheduled_tasks set {change}")
        assert core.sql("select * from core.scheduled_tasks") == before


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("insert into core.event_log (namespace, event_type) values ('default', 'a')", "by core.append_event_log"),
        ("update core.event_log set payload = '{}'", "append-only"),
        ("delete from core.event_log", "append-only"),
    ],
)  # fmt: skip
@requirement("PG-5")
def test_the_log_is_written_by_its_function_alone(
    core: Database, statement: str, sentence: str
) -> None:
    core.sql("select core.append_event_log('default', 'a', '{\"n\": 1}', 'api-1')")
    before = core.sql("select * from core.event_log")
    with refused("QU001", match=sentence):
        core.sql(statement)
    assert core.sql("select * from core.event_log") == before


class TestRoles:
    def session(self, core: Database, role: str) -> psycopg.Connection[Any]:
        session = core.connect()
        session.execute(f"set role {role}")
        return session

    def test_a_worker_registers_and_schedules_and_makes_no_namespace(self, core: Database) -> None:
        worker = self.session(core, "headrace_worker")
        worker.execute(REGISTER, ["a", "default", None, None, "{}"])
        worker.execute("update core.nodes set last_heartbeat = now() where node_id = 'a'")
        worker.execute(
            "insert into core.scheduled_tasks (namespace, name, cron_expression) values ('default', 'b', '@daily')"
        )
        for statement in (
            "insert into core.namespaces (namespace) values ('b')",
            "delete from core.scheduled_tasks",
            "table core.event_log",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                worker.execute(statement)

    @pytest.mark.parametrize("role", ["headrace_reader", "headrace_publisher"])
    def test_who_may_only_look_or_publish_writes_nothing(self, core: Database, role: str) -> None:
        session = self.session(core, role)
        for statement in (
            "insert into core.nodes (node_id, namespace) values ('a', 'default')",
            "update core.scheduled_tasks set active = false",
            "insert into core.namespaces (namespace) values ('b')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                session.execute(statement)

    def test_nobody_writes_the_table_below_the_view(self, core: Database) -> None:
        for role in ("headrace_worker", "headrace_admin"):
            session = self.session(core, role)
            for statement in (
                "table core._registry",
                "insert into core._registry (node_id) values ('a')",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    session.execute(statement)

    def test_a_bound_role_writes_in_its_namespace_only(self, core: Database) -> None:
        for name in ("ours", "theirs"):
            core.sql("select headrace.create_namespace(%s)", [name])
            register(core, "a", name)
            core.sql("select headrace.schedule_task(%s, 'a', '@daily')", [name])
        core.sql("drop role if exists core_tenant")
        core.sql("create role core_tenant login in role headrace_admin")
        core.sql("select headrace.bind_role('core_tenant', '{ours}')")
        tenant = core.connect(user="core_tenant")
        for statement in (
            "insert into core.nodes (node_id, namespace) values ('b', 'theirs')",
            "insert into core.namespaces (namespace) values ('more')",
            "insert into core.scheduled_tasks (namespace, name, cron_expression) values ('theirs', 'b', '@daily')",
            "insert into core.scheduled_tasks (namespace, name, cron_expression) values ('theirs', 'a', '@daily')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="not bound"):
                tenant.execute(statement)
        tenant.execute(REGISTER, ["b", "ours", None, None, "{}"])
        tenant.execute("update core.nodes set last_heartbeat = now()")
        tenant.execute("update core.scheduled_tasks set active = false")
        tenant.execute("delete from core.scheduled_tasks")
        tenant.execute('update core.namespaces set metadata = \'{"by": "tenant"}\'')
        assert core.sql("select namespace, active from core.scheduled_tasks") == [("theirs", True)]
        assert [row[:2] for row in core.sql(NODES)] == [
            ("a", "ours"),
            ("b", "ours"),
            ("a", "theirs"),
        ]
        assert core.sql("select metadata from core.namespaces where namespace = 'theirs'") == [
            ({},)
        ]
