"""Who may do what: each role its own functions, nobody a table, PUBLIC nothing, and nobody's objects run as ours."""

import re
from collections.abc import Iterator
from datetime import timedelta
from importlib import resources

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege

from headrace.install.migrate import migrate
from headrace.install.replace import files_below
from tests.database import Database, Server
from tests.engine.every_function import CALLS, CALLS_OF_ALL, arguments, live, public_functions
from tests.engine.functions_helpers import Engine
from tests.engine.races_helpers import Session
from tests.requirements import requirement

FINISHING = {
    *(
        "finish",
        "complete",
        "complete_lease",
        "complete_held",
        "fail",
        "release",
        "finalize",
        "finalized",
        "extend",
    ),
    *("resolve", "save_progress", "progress"),
    *("report", "start", "heartbeat"),
}
LISTS = {"events", "count_events", "deliveries", "dead_letters", "dead_letter", "dead_letter_groups", "workers", "log_since", "state", "low_water", "checkpoints", "recoveries", "replay", "nodes", "unhandled_types", "schedules", "admin_log", "limits"}  # fmt: skip
METRICS = {
    "totals",
    "backlog",
    "count_nodes",
    "latencies",
    "log_end",
    "log_now",
    "locks_in_the_way",
    "log_waits",
    "longest_waits",
    "ticking",
}
BINDING = {"bind_role", "unbind_role", "bound_roles"}
TOKENS = {"create_token", "tokens", "live_tokens", "revoke_token"}
READING = {
    "place",
    "event",
    "event_log",
    "progress",
    "stats",
    "history",
    "attention",
    "attention_in",
    "lineage",
    "why",
    "find_events",
    "queue",
    "queues",
    *LISTS,
    *METRICS,
}
QUEUES = {"create_queue", "change_queue", "delete_queue", "pause", "resume", "drain", "export_queue", "export_events", "fence", "import_state"}  # fmt: skip
NODES = {"register_node", "touch_node_heartbeat", "unregister_node", "stay", "hear_interruptions", "recover", "save_state", "checkpoint", "fall_asleep", "wake_up", "schedule_task", "tasks_to_plan", "plan_task"}  # fmt: skip
SCHEDULES = {"pause_schedule", "resume_schedule", "run_schedule", "remove_schedule", "run_scheduled_task"}  # fmt: skip
ADMINISTRATION = {"cancel", "reset", "rerun", "redrive", "purge", "erase",
                  "namespaces", "change_namespace", "delete_namespace"}  # fmt: skip
SHARD = {"shard", "shard_of", "slots"}
MAY_CALL = {
    "publisher": {"publish", "published_before", "publish_one", "publish_many", "max_payload", "version", "has_capacity", "ids_behind", *SHARD},
    "worker": {"publish", "published_before", "publish_one", "publish_many", "max_payload", "version", "has_capacity", "ids_behind", *SHARD, "poll", "poll_batch", "poll_for", "tick", "queue", *FINISHING, *NODES},
    "reader": {"max_payload", "version", "ids_behind", *SHARD, *READING},
    "admin": {"publish", "published_before", "give_slots", "accept_slots", "slots_left", "open_slots", "publish_one", "publish_many", "max_payload", "version", "has_capacity", "ids_behind", *SHARD, "repair_ids", "poll", "poll_batch", "poll_for", "tick", *FINISHING, *READING, *QUEUES, *NODES, *SCHEDULES,
              "create_namespace", "configure", "queue_name_for_namespace", *ADMINISTRATION, *TOKENS, *BINDING},
    "nobody": set(),
}  # fmt: skip
MAY_READ = {
    role: {
        f"headrace.{name}"
        for name in (
            "event_queue",
            "event_log",
            "event_queue_state",
            "queue_checkpoints",
            "bound_roles",
        )
    }
    for role in ("reader", "admin")
}
VIEWS = {
    f"headrace.{name}"
    for name in ("admission", "deliveries", "event_queue", "log_entries", "event_log")
}
every_role = pytest.mark.parametrize("role", MAY_CALL)
every_granted_role = pytest.mark.parametrize(
    "role", [role for role in MAY_CALL if role != "nobody"]
)


@pytest.fixture(scope="module", autouse=True)
def logins(server: Server) -> Iterator[None]:
    """Somebody of each role, as an application would have him: a login that is a member."""
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        for role, calls in MAY_CALL.items():
            admin.execute(
                f"create role some_{role} login" + f" in role headrace_{role}" * bool(calls)
            )
        yield
        for role in MAY_CALL:
            admin.execute(f"drop role some_{role}")


def session(db: Database, role: str) -> Session:
    return Session(db, user=f"some_{role}")


def routines(db: Database) -> list[tuple[str, str]]:
    """The name of each function of ours and a call of it, with nothing but nulls."""
    return db.sql("""
        select p.proname::text,
               format('select headrace.%I(%s)', p.proname,
                      (select string_agg('null::' || format_type(t, null), ', ' order by n)
                       from unnest(p.proargtypes) with ordinality as a(t, n)))
        from pg_proc p
        where p.pronamespace = 'headrace'::regnamespace and not p.proisstrict  -- that is null without a call
    """)


def granted(db: Database, role: str) -> set[str]:
    """The functions of ours that somebody of a role may execute, as the catalogue has it."""
    functions = db.sql(
        "select p.proname::text from pg_proc p where p.pronamespace = 'headrace'::regnamespace"
        " and has_function_privilege(%s, p.oid, 'execute')",
        [f"some_{role}"],
    )
    return {name for (name,) in functions}


def test_the_functions_that_a_role_may_call_are_those_without_an_underscore() -> None:
    sql = resources.files("headrace") / "sql"
    found = re.search(
        r"grants constant text := '(.*?)'", (sql / "roles.sql").read_text(), re.DOTALL
    )
    assert found is not None
    lines = [line.split(": ") for line in found[1].strip().splitlines()]
    granted = [(name.strip(), roles.split(" ")) for name, roles in lines]
    files = [name for name, _ in files_below("functions") if not name.startswith("_")]
    assert sorted(name for name, _ in granted) == sorted(files)
    assert {role for _, roles in granted for role in roles} == {
        "publisher",
        "worker",
        "reader",
        "admin",
    }


def relations(db: Database) -> list[str]:
    return [
        name
        for (name,) in db.sql(
            "select c.oid::regclass::text from pg_class c"
            " where c.relnamespace = 'headrace'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f')"
        )
    ]


def refused(who: Session, statement: str) -> bool:
    try:
        who.sql(statement)
    except InsufficientPrivilege:
        return True
    except psycopg.Error:
        return False
    return False


class TestFunctions:
    @every_role
    def test_a_role_may_call_its_functions_and_no_others(self, db: Database, role: str) -> None:
        who = session(db, role)
        allowed = {name for name, call in routines(db) if not refused(who, call)}
        assert allowed == granted(db, role)
        assert allowed - MAY_CALL[role] == set(), (
            "roles.sql grants these; MAY_CALL, above, does not"
        )
        assert MAY_CALL[role] - allowed == set(), "MAY_CALL, above, has these; roles.sql does not"

    def test_a_publisher_publishes(self, db: Database) -> None:
        who = session(db, "publisher")
        who.publish(2, type="order.paid", tags=["a"], delay=1)
        who.publish()
        assert len(db.placement()) == 3
        assert who.sql("select major from headrace.version()")

    @requirement("G9")
    def test_a_worker_does_all_of_a_workers_work(self, db: Database) -> None:
        who = session(db, "worker")
        who.publish(7)
        batch, held = who.poll(4), who.poll(3, each=True)
        assert who.extend(batch[0].lease, held[0].lease) == ["held", "held"]
        assert who.finish(batch[:2]) == ["counted"] * 2
        assert who.finish(batch[2:], action="fail", error="no") == ["counted"] * 2
        who.sql("select headrace.complete('default', %s, 1)", [held[0].id])
        who.sql("select headrace.fail('default', %s, 1, 'no')", [held[1].id])
        assert who.resolve(held[2]) is None
        who.sql("select headrace.release('default', %s, 1)", [held[2].id])
        [again] = who.poll(each=True)
        who.sql("select headrace.finalize('default', %s, 2, '{broken}')", [again.id])
        db.advance(days=62)
        assert who.tick(upkeep=True).kept_up  # makes months, which are not its own
        assert len(who.poll(9)) == 3

    @requirement("G12")
    def test_a_worker_is_a_node_and_keeps_schedules_going_which_an_admin_manages(
        self, db: Database
    ) -> None:
        worker, reader, admin = (session(db, role) for role in ("worker", "reader", "admin"))
        worker.sql("select headrace.register_node('default', 'a', gen_random_uuid())")
        [node] = reader.sql("select * from headrace.nodes('default')")
        assert worker.sql(
            "select headrace.touch_node_heartbeat('default', 'a', %s)", [node.instance]
        ) == [("alive",)]
        worker.sql("select headrace.schedule_task('default', 'b', '* * * * * *')")
        for _ in range(2):
            worker.sql("""
                select headrace.plan_task('default', task_id, version, array[at + interval '1 s', at + interval '1 day'])
                from headrace.tasks_to_plan('default')
            """)
        db.advance(seconds=2)
        assert worker.tick().fired == 1
        admin.sql("select headrace.pause_schedule('default', 'b')")
        [task] = reader.sql("select * from headrace.schedules('default')")
        assert (task.name, task.active) == ("b", False)
        assert admin.sql("select headrace.run_schedule('default', 'b')") != [(None,)]
        admin.sql("select headrace.resume_schedule('default', 'b')")
        admin.sql("select headrace.remove_schedule('default', 'b')")
        worker.sql("select headrace.unregister_node('default', 'a', %s)", [node.instance])
        assert len(worker.poll(9)) == 2

    def test_a_reader_reads(self, db: Database) -> None:
        [event] = Session(db).publish()
        who = session(db, "reader")
        assert who.sql("select status from headrace.event('default', %s)", [event]) == [
            ("PENDING",)
        ]
        assert who.sql("select action from headrace.event_log('default', %s)", [event]) == [
            ("EMITTED",)
        ]
        assert who.sql("select ready from headrace.stats('default')") == [(1,)]
        assert who.sql("select id from headrace.event_queue") == [(event,)]
        assert who.sql("select event_id from headrace.event_log") == [(event,)]

    def test_an_admin_does_everything(self, db: Database) -> None:
        who = session(db, "admin")
        assert who.sql("select headrace.create_namespace('theirs')") == [(True,)]
        who.sql("select headrace.configure('retention', '3 months')")
        [event] = who.publish()
        assert who.finish(who.poll()) == ["counted"]
        assert who.sql("select status from headrace.event('default', %s)", [event]) == [
            ("COMPLETED",)
        ]
        assert who.sql("select headrace.queue_name_for_namespace('a-b')") == [("core_events_a_b",)]


class TestTables:
    @every_role
    def test_a_role_has_no_right_on_any_table(self, db: Database, role: str) -> None:
        readable = MAY_READ.get(role, set())
        for table in relations(db):
            [(privileges,)] = db.sql(
                """
                select array_agg(p) from unnest('{select,insert,update,delete,truncate,references,trigger}'::text[]) p
                where has_table_privilege(%(role)s, %(table)s, p)
                   or p in ('select', 'insert', 'update', 'references') and has_any_column_privilege(%(role)s, %(table)s, p)
                """,
                {"role": f"some_{role}", "table": table},
            )
            assert (privileges or []) == ["select"] * (table in readable), table

    @every_role
    def test_a_role_is_refused_every_table_also_those_that_are_made_later(
        self, db: Database, role: str
    ) -> None:
        db.advance(days=62)
        Session(db).tick(upkeep=True)
        who = session(db, role)
        for table in relations(db):
            if table not in MAY_READ.get(role, ()):
                assert refused(who, f"select count(*) from {table}"), table
            if table not in VIEWS:
                assert refused(who, f"delete from {table}"), table
        assert refused(who, "select nextval('headrace.ids')")
        assert refused(who, "select last_value from headrace.ids")

    @every_role
    def test_a_role_can_make_nothing_in_the_schema(self, db: Database, role: str) -> None:
        who = session(db, role)
        assert refused(who, "create table headrace.mine (a int)")
        assert refused(
            who, "create function headrace.mine() returns int language sql as 'select 1'"
        )
        assert refused(who, "create or replace function headrace._now() returns timestamptz"
                            " language sql as 'select null::timestamptz'")  # fmt: skip
        assert refused(
            who,
            "alter function headrace.publish(text, jsonb, boolean, boolean) owner to current_user",
        )

    @every_granted_role
    def test_a_role_is_no_login_and_has_no_power_of_its_own(self, db: Database, role: str) -> None:
        assert db.sql(
            "select rolcanlogin, rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls"
            " from pg_roles where rolname = %s",
            [f"headrace_{role}"],
        ) == [(False,) * 6]
        assert db.sql(
            "select count(*) from pg_auth_members where member = %s::regrole", [f"headrace_{role}"]
        ) == [(0,)]


class TestLimits:
    @pytest.mark.parametrize(
        "call",
        [
            """select headrace.publish('default', '{"type": "a"}', enforce => false)""",
            """select headrace.publish('default', '{"type": "b", "tags": ["c"]}', enforce => false)""",
            "select headrace.publish_one('default', 'a', '{}', enforce => false)",
            "select headrace.publish_many('default', 'a', '[1, 2]', enforce => false)",
        ],
    )
    def test_only_an_administrator_passes_the_limit_of_a_queue(
        self, db: Database, call: str
    ) -> None:
        db.queue().publish("a")
        db.sql("select headrace.change_queue('default', 'main', '{\"max_queue_depth\": 1}')")
        for role in ("publisher", "worker"):
            who = session(db, role)
            with pytest.raises(psycopg.Error, match="is full"):
                who.sql(call)
            assert who.sql("select headrace.has_capacity('default', 'a')") == [(False,)]
        session(db, "admin").sql(call)
        db.sql(call)


class TestSearchPath:
    """Our functions run with the rights of the schema's owner, so nobody's objects may run inside them."""

    # Each raises when it is called. Between them they stand in for what every function of ours uses.
    OPERATORS = (
        "= (text, text)", "= (bigint, bigint)", "= (integer, integer)", "< (bigint, bigint)", ">= (bigint, bigint)",
        "> (timestamptz, timestamptz)", "< (timestamptz, timestamptz)", "+ (timestamptz, interval)",
        "|| (text, text)", "-> (jsonb, text)", "-> (jsonb, integer)", "->> (jsonb, text)", "- (jsonb, text[])",
        "? (jsonb, text)", "@? (jsonb, jsonpath)", ">> (bigint, integer)", "~ (text, text)", "<> (text, text)",
        "= (jsonb, jsonb)", "|| (bigint[], bigint[])", "= (bigint[], bigint[])",
    )  # fmt: skip
    FUNCTIONS = (
        "now()", "clock_timestamp()", "transaction_timestamp()", "pg_current_xact_id()", "nextval(regclass)",
        "cardinality(bigint[])", "cardinality(integer[])", "jsonb_typeof(jsonb)", "jsonb_array_elements(jsonb)",
        "hashtextextended(text, bigint)", "length(text)", "octet_length(text)", "btrim(text)", "current_setting(text)",
        "set_config(text, text, boolean)", "pg_notify(text, text)", "date_trunc(text, timestamptz)", "to_regclass(text)",
        "pg_try_advisory_xact_lock(integer, integer)", "pg_try_advisory_lock(integer, integer)", "random()",
        "array_fill(bigint, integer[])", "array_position(bigint[], bigint)", "get_bit(bit, integer)", "format(text, text)",
        "pg_column_size(jsonb)", "coalesce(text, text)",
    )  # fmt: skip

    @pytest.fixture
    def hostile(self, db: Database) -> Session:
        """A worker and reader whose search path begins with traps."""
        trap = "begin raise exception 'a trap ran as %', current_user; end"
        db.sql("create schema traps; grant usage on schema traps to public")
        for function in self.FUNCTIONS:
            name, _, arguments = function.partition("(")
            db.sql(
                f'create function traps."{name}"({arguments} returns bigint language plpgsql as $${trap}$$'
            )
        for n, operator in enumerate(self.OPERATORS):
            sign, _, arguments = operator.partition(" ")
            left, right = arguments.strip("()").split(", ")
            db.sql(
                f"create function traps.f{n}({left}, {right}) returns boolean language plpgsql as $${trap}$$"
            )
            db.sql(
                f"create operator traps.{sign} (leftarg = {left}, rightarg = {right}, function = traps.f{n})"
            )
        who = session(db, "admin")
        who.sql("set search_path = traps, pg_catalog")
        for table in ("events", "ready", "queues", "leases", "held", "routes", "settings"):
            who.sql(f"create temp table {table} (id bigint, space text, name text)")
        return who

    def test_the_traps_are_sharp(self, hostile: Session) -> None:
        for call in (
            "now()",
            "jsonb_typeof('{}'::jsonb)",
            "1::bigint = 1::bigint",
            "'a'::text || 'b'::text",
        ):
            with pytest.raises(psycopg.errors.RaiseException, match="a trap ran as some_admin"):
                hostile.sql(f"select {call}")

    def test_nobodys_operators_functions_and_tables_run_inside_ours(
        self, db: Database, hostile: Session
    ) -> None:
        hostile.publish(
            3, type="order.paid", tags=["b", "a"], priority=3, payload={"n": [1.5, "x"]}
        )
        hostile.publish(1, type="plain", payload={})
        hostile.publish(2, delay=5, max_retries=2, title="t", source={"type": "task"})
        db.advance(seconds=6)
        hostile.tick(upkeep=True)
        batch = hostile.poll(3, types=["order.*"], tags=["a"])
        held = hostile.poll(2, each=True, hints=batch[0].hints, sweep=True)
        assert hostile.extend(batch[0].lease, held[0].lease) == ["held", "held"]
        assert hostile.finish(batch[:2]) == ["counted"] * 2
        assert hostile.finish(batch[2:], action="fail", error="no", retry_in=0) == ["counted"]
        assert hostile.finish(batch[:1]) == ["repeated"]
        assert hostile.resolve(held[0]) is None
        hostile.sql("select headrace.fail('default', %s, 1, 'no')", [held[0].id])
        hostile.sql("select headrace.release('default', %s, 1)", [held[1].id])
        event = batch[0].id
        for read in ("event('default', %s)", "event_log('default', %s)"):
            assert hostile.sql(f"select * from headrace.{read}", [event])
        hostile.sql("select * from headrace.stats('default')")
        hostile.sql("select * from headrace.version()")
        hostile.sql("select headrace.create_namespace('theirs')")
        hostile.sql("select headrace.configure('retention', '1 month')")
        db.advance(days=62)
        hostile.tick(upkeep=True)
        claims = hostile.poll(9)
        hostile.sql(
            "select headrace.finalize('default', %s, %s, '{no}')", [claims[0].id, claims[0].attempt]
        )
        hostile.sql("select id, status from headrace.event_queue order by id")
        hostile.sql(
            "select headrace.register_node('default', 'a b', gen_random_uuid(), handles => '{a}')"
        )
        hostile.sql("select headrace.touch_node_heartbeat('default', 'a', gen_random_uuid())")
        hostile.sql("select * from headrace.nodes('default')")
        hostile.sql(
            "select headrace.schedule_task('default', 'b', '* * * * *', event => '{\"tags\": [\"a\"]}')"
        )
        [task] = hostile.sql("select * from headrace.tasks_to_plan('default')")
        hostile.sql(
            "select headrace.plan_task('default', %s, 1, %s::timestamptz[])",
            [task.task_id, [task.at + timedelta(seconds=1)]],
        )
        db.advance(seconds=2)
        assert hostile.tick().fired == 1
        for change in ("pause", "run", "resume", "remove"):
            hostile.sql(f"select headrace.{change}_schedule('default', 'b')")

    def test_every_function_that_runs_with_our_rights_fixes_its_search_path(
        self, db: Database
    ) -> None:
        definers = db.sql(
            "select proname, proconfig from pg_proc where pronamespace = 'headrace'::regnamespace and prosecdef"
            " and proname <> '_now'"  # the tests' own clock
        )
        names = {name for name, _ in definers} | {"place", "queue_name_for_namespace"}
        assert names - MAY_CALL["admin"] == set(), "security definer: add these to MAY_CALL, above"
        assert MAY_CALL["admin"] - names == set(), "public: these need security definer"
        for name, settings in definers:
            assert "search_path=pg_catalog, pg_temp" in settings, name


class TestEveryFunction:
    """Not only granted: done, by a login of the role, where the owner of everything is no superuser."""

    @pytest.fixture
    def owned_db(self, server: Server, empty_db: Database) -> Iterator[Database]:
        with psycopg.connect(server.dsn, autocommit=True) as admin:
            admin.execute("create role plain_owner login")
            admin.execute(f"alter database {empty_db.name} owner to plain_owner")
            migrate(empty_db.connect(user="plain_owner"))
            yield empty_db
            empty_db.close()
            server.drop_database(empty_db.name)
            admin.execute("drop role plain_owner")

    def test_each_role_does_each_of_its_works(self, owned_db: Database) -> None:
        assert owned_db.sql(
            "select distinct r.rolname, r.rolsuper from pg_proc p join pg_roles r on r.oid = p.proowner"
            " where p.pronamespace = 'headrace'::regnamespace"
        ) == [("plain_owner", False)]
        public, listed = public_functions(owned_db), set(CALLS) | set(CALLS_OF_ALL)
        assert public - listed == set(), "CALLS in every_function.py needs an example of these"
        assert listed - public == set(), "every_function.py has these, and roles.sql does not"
        life = live(owned_db, "here")
        for role in MAY_CALL:
            who = Engine(owned_db, user=f"some_{role}")
            done = set()
            for function in sorted(granted(owned_db, role)):
                with who.connection.transaction(force_rollback=True):
                    who.call(function, **arguments(function, life))  # raises nothing
                done.add(function)
            assert done == MAY_CALL[role], role
