"""Roles that are bound to namespaces: in others they do, see and learn nothing, by whichever function."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.errors import InsufficientPrivilege, LockNotAvailable

import headrace
from headrace.install.migrate import migrate
from tests.database import Database, Server
from tests.engine.every_function import (
    CALLS_OF_ALL,
    Life,
    arguments,
    functions_of_a_namespace,
    live,
    public_functions,
)
from tests.engine.functions_helpers import Engine, contents, differences
from tests.node.nodes import node, running, until
from tests.requirements import requirement

pytestmark = requirement("G16")
# A tenant has every right that Headrace gives, in its own namespaces.
ROLES = (
    "tenant",
    "other_tenant",
    "group_member",
    "loose_member",
    "tenants",
    "free_admin",
    "bound_worker",
)
# About all namespaces, and yet harmless: they tell of nobody, and what upkeep does it does for all.
HARMLESS = {"version", "max_payload", "tick", "stay", "wake_up", "ticking", "log_end", "log_now", "ids_behind", "shard", "place", "slots", "queue_name_for_namespace", "hear_interruptions", "locks_in_the_way", "log_waits"}  # fmt: skip
# They tell of the caller's namespaces alone.
LISTING = {
    "namespaces",
    "totals",
    "backlog",
    "count_nodes",
    "longest_waits",
    "latencies",
    "bound_roles",
}
READABLE = ("event_queue", "event_log", "event_queue_state", "queue_checkpoints")


@pytest.fixture(scope="module", autouse=True)
def logins(server: Server) -> Iterator[None]:
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute("create role tenants nologin")
        for role in ("tenant", "other_tenant", "free_admin"):
            admin.execute(f"create role {role} login in role headrace_admin, headrace_reader")
        admin.execute("create role bound_worker login in role headrace_worker")
        admin.execute("create role group_member login in role tenants, headrace_admin")
        admin.execute("create role loose_member login noinherit in role tenants")
        admin.execute("grant headrace_admin, headrace_reader to tenants")
        yield
        for role in ROLES:
            admin.execute(f"drop role {role}")


@pytest.fixture
def lives(db: Database) -> tuple[Life, Life]:
    """Ours and theirs; the tenant is bound to ours."""
    both = live(db, "ours"), live(db, "theirs")
    bind(db, "tenant", "ours")
    return both


def bind(db: Database, role: str, *namespaces: str) -> None:
    db.sql("select headrace.bind_role(%s, %s::text[])", [role, list(namespaces)])


def may(db: Database, user: str, namespace: str, before: str = "") -> bool:
    """Whether somebody may look at a namespace that is there."""
    with db.connect(user=user) as connection:
        if before:
            connection.execute(before)
        try:
            connection.execute("select * from headrace.stats(%s)", [namespace])
        except InsufficientPrivilege:
            return False
        return True


class TestEveryFunction:
    def test_in_another_namespace_every_function_is_refused(
        self, db: Database, lives: tuple[Life, Life]
    ) -> None:
        _, theirs = lives
        tenant = Engine(db, user="tenant")
        before = contents(db)
        for function in sorted(functions_of_a_namespace(db)):
            with pytest.raises(InsufficientPrivilege, match="not bound to the namespace 'theirs'"):
                tenant.call(function, **arguments(function, theirs))
        assert differences(before, contents(db)) == set()

    def test_in_its_own_every_function_works(self, db: Database, lives: tuple[Life, Life]) -> None:
        ours, _ = lives
        tenant = Engine(db, user="tenant")
        for function in sorted(functions_of_a_namespace(db)):
            with tenant.connection.transaction(force_rollback=True):
                tenant.call(function, **arguments(function, ours))

    def test_of_one_that_does_not_exist_it_is_told_the_same(
        self, db: Database, lives: tuple[Life, Life]
    ) -> None:
        tenant = Engine(db, user="tenant")
        for function in sorted(functions_of_a_namespace(db)):
            call = {**arguments(function, lives[1]), "namespace": "nowhere"}
            with pytest.raises(InsufficientPrivilege, match="not bound to the namespace 'nowhere'"):
                tenant.call(function, **call)

    def test_what_is_about_all_namespaces_is_refused_or_tells_of_its_own(
        self, db: Database, lives: tuple[Life, Life]
    ) -> None:
        ours, theirs = lives
        db.sql("select headrace.tick(upkeep => true)")
        tenant = Engine(db, user="tenant")
        of_all = public_functions(db) - functions_of_a_namespace(db)
        assert of_all == set(CALLS_OF_ALL)
        for function in sorted(of_all - HARMLESS):
            call = arguments(function, theirs)
            if function in LISTING:
                told = repr(tenant.call(function, **call))
                assert "theirs" not in told, function
                assert function in {"latencies", "longest_waits"} or "ours" in told, function
            else:
                with pytest.raises(InsufficientPrivilege, match="bound"):
                    pytest.fail(f"{function}: {tenant.call(function, **call)}")
        assert tenant.call("run_scheduled_task", task_id=ours.task.task_id)

    def test_of_the_namespaces_that_it_names_each_must_be_its_own(
        self, db: Database, lives: tuple[Life, Life]
    ) -> None:
        tenant = Engine(db, user="tenant")
        tenant.call("attention_in", namespaces=["ours"])
        for other in ("theirs", "nowhere"):
            with pytest.raises(
                InsufficientPrivilege, match=f"not bound to the namespace '{other}'"
            ):
                tenant.call("attention_in", namespaces=["ours", other])

    def test_null_is_no_way_to_all_of_them(self, db: Database, lives: tuple[Life, Life]) -> None:
        tenant = Engine(db, user="tenant")
        for function in ("attention", "admin_log"):
            with pytest.raises(InsufficientPrivilege, match="about all of them"):
                tenant.call(function, namespace=None)

    def test_views_and_tables_show_its_own(self, db: Database, lives: tuple[Life, Life]) -> None:
        for life in lives:
            db.sql("select headrace.checkpoint(%s)", [life.namespace])
        tenant, free = db.connect(user="tenant"), db.connect(user="free_admin")
        for name in READABLE:
            mine = repr(tenant.execute(f"select v::text from headrace.{name} v").fetchall())
            alls = repr(free.execute(f"select v::text from headrace.{name} v").fetchall())
            assert "theirs" not in mine, name
            if name != "queue_checkpoints":
                assert "ours" in mine, name
            assert "theirs" in alls, name
        db.sql("select set_config('role', 'tenant', false)")
        assert "theirs" not in repr(db.sql("select v::text from headrace.event_queue v"))

    @pytest.mark.parametrize("calls", ["tick", "poll"])
    def test_what_is_due_elsewhere_is_not_its_to_move_or_to_hold(
        self, db: Database, lives: tuple[Life, Life], calls: str
    ) -> None:
        """In a transaction that stays open it would keep it from everybody."""
        ours, theirs = (db.queue(namespace=life.namespace) for life in lives)
        for queue in (ours, theirs):
            queue.publish("due", delay=60)
            queue.publish("claimed")
            assert queue.poll(types=["claimed"], lease=60)
            queue.schedule_task("soon", "* * * * * *", "fired")
            queue.plan_schedules()
        db.advance(seconds=61)
        tenant = Engine(db, "ours", user="tenant")
        with tenant.connection.transaction():
            if calls == "tick":
                [did] = tenant.call("tick", upkeep=True)
                assert (did.due >= 1, did.expired >= 1, did.fired >= 1, did.kept_up) == (
                    True,
                    True,
                    True,
                    False,
                )
            else:
                assert tenant.poll(1, sweep=True, types=["due"])
            [(locked,)] = db.sql(
                "select count(*) from (select from headrace.locks where name !~ ' ' for update skip locked) free"
            )
            assert (locked,) == db.sql("select count(*) from headrace.locks where name !~ ' '")[0]
            db.sql("select headrace.tick()")
            waiting = {name for (name,) in db.sql(
                "select type from headrace.event_queue where namespace = 'theirs' and status = 'PENDING'"
                " and (next_retry_at is null or next_retry_at < headrace._now())"
            )}  # fmt: skip
            assert {"due", "claimed", "fired"} <= waiting


class TestWhoIsBound:
    @pytest.fixture(autouse=True)
    def places(self, db: Database) -> None:
        for name in ("a", "b", "c"):
            db.sql("select headrace.create_namespace(%s)", [name])

    def test_nobody_unless_it_is_said(self, db: Database) -> None:
        assert may(db, "tenant", "b")
        bind(db, "tenant", "a")
        assert [may(db, "tenant", place) for place in "abc"] == [True, False, False]
        assert may(db, "other_tenant", "b")
        bind(db, "tenant", "b", "c")
        assert [may(db, "tenant", place) for place in "abc"] == [False, True, True]
        bind(db, "tenant")
        assert [may(db, "tenant", place) for place in "abc"] == [False, False, False]
        assert db.sql("select headrace.unbind_role('tenant')") == [(True,)]
        assert db.sql("select headrace.unbind_role('tenant')") == [(False,)]
        assert may(db, "tenant", "b")
        assert db.sql("select bool_or(bound) from headrace.namespaces") == [(False,)]
        assert db.sql("select bool_or(bound) from headrace.queues") == [(False,)]

    def test_by_the_groups_whose_rights_it_inherits(self, db: Database) -> None:
        bind(db, "tenants", "a")
        assert [may(db, "group_member", place) for place in "ab"] == [True, False]
        bind(db, "group_member", "b")
        assert [may(db, "group_member", place) for place in "abc"] == [True, True, False]
        as_group = "set role tenants"
        assert [may(db, "loose_member", place, as_group) for place in "ab"] == [True, False]

    def test_by_groups_whose_rights_it_has_only_by_setting_them(self, db: Database) -> None:
        """They give it the right to be administrator, too."""
        bind(db, "tenants", "a")
        as_admin = "set role headrace_admin"
        assert [may(db, "loose_member", place, as_admin) for place in "ab"] == [True, False]
        db.sql("select headrace.checkpoint(s) from unnest('{a,b}'::text[]) s")
        with db.connect(user="loose_member") as loose:
            loose.execute(as_admin)
            with pytest.raises(InsufficientPrivilege, match="bound"):
                loose.execute("select headrace.bind_role('tenants', '{a,b}')")
            loose.execute("set role headrace_reader")
            states = loose.execute("select id from headrace.event_queue_state").fetchall()
            assert states == [("a/main",)]

    def test_the_log_says_who_has_set_the_role_that_acted(self, db: Database) -> None:
        with db.connect(user="free_admin") as admin:
            admin.execute("set role headrace_admin")
            admin.execute("select headrace.bind_role('tenant', '{a}', 'somebody else')")
        assert db.sql("select bound_by from headrace.bound_roles") == [("headrace_admin",)]
        [(actor, details)] = db.sql(
            "select actor, details from headrace.admin_log(null) where action = 'bind_role'"
        )
        assert actor == "headrace_admin"
        assert details["session_user"] == "free_admin"
        assert details["on_behalf_of"] == "somebody else"

    def test_who_keeps_it_from_being_said_is_named(self, db: Database) -> None:
        bind(db, "tenant", "a")
        with db.connect(user="tenant", application_name="slow", autocommit=False) as slow:
            slow.execute("select headrace.create_queue('a', 'x')")
            free = db.connect()
            free.execute("alter function headrace.bind_role set lock_timeout = '1ms'")
            pid = slow.info.backend_pid
            with pytest.raises(
                LockNotAvailable, match=rf"process {pid} \(role tenant, application 'slow'\)"
            ):
                free.execute("select headrace.bind_role('tenant', '{}')")

    def test_by_the_role_that_was_set(self, db: Database) -> None:
        bind(db, "tenant", "a")
        assert [may(db, "postgres", place, "set role tenant") for place in "ab"] == [True, False]

    def test_who_sets_a_role_that_is_not_bound_stays_bound(self, db: Database) -> None:
        bind(db, "tenant", "a")
        as_admin = "set role headrace_admin"
        assert [may(db, "tenant", place, as_admin) for place in "ab"] == [True, False]

    def test_a_superuser_and_the_owner_never(self, db: Database) -> None:
        bind(db, "tenant", "a")
        assert may(db, "postgres", "b")
        with pytest.raises(psycopg.Error, match="postgres is never bound"):
            bind(db, "postgres", "a")
        with pytest.raises(psycopg.Error, match="there is no role 'nobody at all'"):
            bind(db, "nobody at all", "a")

    def test_namespaces_and_queues_that_are_made_later(self, db: Database) -> None:
        bind(db, "tenant", "a")
        db.sql("select headrace.create_namespace('later')")
        db.sql("select headrace.create_queue('b', 'later')")
        assert not may(db, "tenant", "later")
        tenant = Engine(db, user="tenant")
        with pytest.raises(InsufficientPrivilege):
            tenant.call("poll", namespace="b", queue="later")

    def test_a_namespace_that_is_made_while_a_role_is_being_bound(self, db: Database) -> None:
        binding, making = db.connect(autocommit=False), db.connect()
        binding.execute("select headrace.bind_role('tenant', '{a}')")
        making.pgconn.send_query(b"select headrace.create_namespace('meanwhile')")
        db.wait_until_blocked(making)
        binding.commit()
        while making.pgconn.get_result() is not None:
            pass
        assert not may(db, "tenant", "meanwhile")

    def test_a_bound_administrator_cannot_unbind_itself(self, db: Database) -> None:
        bind(db, "tenant", "a")
        tenant = Engine(db, user="tenant")
        for call in (
            {"function": "unbind_role", "role": "tenant"},
            {"function": "bind_role", "role": "tenant", "namespaces": ["a", "b"]},
        ):
            function = call.pop("function")
            with pytest.raises(InsufficientPrivilege, match="about all of them"):
                tenant.call(function, **call)
        [one] = tenant.call("bound_roles")
        assert (one.role, one.namespaces, one.bound_by) == ("tenant", ["a"], "postgres")

    def test_a_role_that_was_renamed_stays_bound(self, db: Database) -> None:
        bind(db, "tenant", "a")
        db.sql("alter role tenant rename to renamed")
        try:
            assert not may(db, "renamed", "b")
        finally:
            db.sql("alter role renamed rename to tenant")


@pytest.mark.anyio
async def test_a_node_of_a_bound_worker_works_in_its_namespace(db: Database) -> None:
    db.sql("select headrace.create_namespace('ours')")
    bind(db, "bound_worker", "ours")
    dsn = make_conninfo(db.dsn, user="bound_worker")
    one = node(db, dsn=dsn, namespace="ours")
    done: list[Any] = []

    @one.on_event("a")
    async def handle(event: Any) -> None:
        done.append(event.payload)

    with headrace.connect(dsn, namespace="ours") as queue:
        queue.publish("a", 1)
        async with running(one):
            await until(lambda: done == [1])
    with (
        headrace.connect(dsn) as queue,
        pytest.raises(InsufficientPrivilege, match="not bound to the namespace 'default'"),
    ):
        queue.publish("a", 2)


class TestOtherDoors:
    @pytest.fixture(autouse=True)
    def parts(self, db: Database) -> None:
        migrate(db.connect(), add=["core", "pgmq"])
        for name in ("ours", "theirs"):
            live(db, name)
        db.sql("select pgmq.create('tasks')")
        bind(db, "tenant", "ours")

    def test_pgmqs_functions(self, db: Database) -> None:
        tenant = db.connect(user="tenant")
        calls = [
            "send('{queue}', '{{}}')", "send_batch('{queue}', array['{{}}']::jsonb[])", "read('{queue}', 1, 1)",
            "read('{queue}', 1, 1, '{{\"a\": 1}}')", "pop('{queue}')", "set_vt('{queue}', 1, 1)", "archive('{queue}', 1)",
            "delete('{queue}', 1)", "delete('{queue}', array[1])", "metrics('{queue}')", "purge_queue('{queue}')",
            "create('{queue}')", "drop_queue('{queue}')", "read_with_poll('{queue}', 1, 1, 0)",
        ]  # fmt: skip
        db.sql("select headrace.create_namespace('theirs_dlq')")
        for queue in (
            "core_events_theirs",
            "core_events_theirs_dlq",
            "tasks",
            "core_events_nowhere",
            "nowhere",
        ):
            for call in calls:
                with pytest.raises(InsufficientPrivilege, match="not bound"):
                    tenant.execute(f"select * from pgmq.{call.format(queue=queue)}")
        tenant.execute("select * from pgmq.send('core_events_ours', '{}')")
        listed = repr(tenant.execute("select queue_name from pgmq.list_queues()").fetchall())
        assert ("ours" in listed, "theirs" in listed, "tasks" in listed) == (True, False, False)
        assert "theirs" not in repr(tenant.execute("select * from pgmq.metrics_all()").fetchall())

    def test_the_schema_core(self, db: Database) -> None:
        tenant = db.connect(user="tenant")
        for view in ("namespaces", "nodes", "event_log", "scheduled_tasks"):
            rows = repr(tenant.execute(f"select namespace from core.{view}").fetchall())
            assert ("ours" in rows, "theirs" in rows) == (True, False), view
        with pytest.raises(InsufficientPrivilege, match="not bound"):
            tenant.execute("select core.append_event_log('theirs', 'a', '{}', 'me')")
        [(task,)] = db.sql(
            "select task_id from core.scheduled_tasks where namespace = 'theirs' and name = 'a task'"
        )
        with pytest.raises(InsufficientPrivilege, match="not bound"):
            tenant.execute("select core.run_scheduled_task(%s)", [task])
        db.sql("update headrace.nodes set last_heartbeat = '2000-01-01'")
        tenant.execute("select core.touch_node_heartbeat('a-node')")
        assert db.sql("select namespace, last_heartbeat > '2001-01-01' from core.nodes order by 1") == [("ours", True), ("theirs", False)]  # fmt: skip
