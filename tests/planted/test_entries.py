"""Every door that a superuser may use, in a database whose `public` is full of traps: nothing planted runs.

Each fixture `db` asks in the end whether a trap was sprung.
"""

import shlex
from importlib import resources
from typing import Any

import psycopg
import pytest
from anyio.from_thread import start_blocking_portal
from psycopg.rows import namedtuple_row

from headrace import connect
from headrace.doctor import CHECKS, database, examine
from headrace.doctor.database import Distrusted
from headrace.errors import SchemaError
from headrace.install.migrate import migrate
from headrace.server.http import gate as guarding
from tests.cli.running import CommandLine
from tests.client.callers import LIBRARIES, Caller
from tests.client.clients import AsyncClient, Client
from tests.engine.every_function import arguments, live, public_functions
from tests.engine.functions_helpers import Engine
from tests.node.nodes import node, running, until
from tests.planted.planting import PlantedDatabase
from tests.requirements import requirement
from tests.server import running as serving
from tests.server.every_operation import REQUESTS, REQUESTS_OF_ALL, prepared

pytestmark = requirement("G22")
COMMANDS = """
publish order.paid '{"a": 1}'
events
show 1
queues create mail -t 'mail.*'
queues
pause mail
resume mail
namespaces
dead
schedules
stats
attention
nodes
workers
admin-log
checkpoint
checkpoints
tokens
replay
migrate
"""


def unwary(db: PlantedDatabase, **options: Any) -> psycopg.Connection[Any]:
    """A superuser's connection with the database's search_path."""
    return db.connect(options="", **options)


def test_every_function(db: PlantedDatabase) -> None:
    life = live(db, "here")
    superuser = Engine(db, "here", options="")
    for function in sorted(public_functions(db)):
        with superuser.connection.transaction(force_rollback=True):
            superuser.call(function, **arguments(function, life))


def test_every_view(db: PlantedDatabase) -> None:
    migrate(unwary(db), add=["core"])
    live(db, "here")
    views = db.sql(
        "select c.oid::regclass::text from pg_class c where c.relkind = 'v'"
        " and c.relnamespace in ('headrace'::regnamespace, 'core'::regnamespace)"
    )
    assert len(views) > 7
    for (view,) in views:
        assert unwary(db).execute(f"select * from {view}").rowcount > 0, view


def test_pgmq(db: PlantedDatabase) -> None:
    migrate(unwary(db), add=["pgmq"])
    superuser = unwary(db, row_factory=namedtuple_row)
    for call in (
        "create('tasks')",
        """send('tasks', '{"a": 1}', 0)""",
        """send_batch('tasks', array['{"a": 2}', '{"a": 3}']::pg_catalog.jsonb[])""",
        "read('tasks', 30, 1)",
        "set_vt('tasks', 1, 60)",
        "pop('tasks')",
        "archive('tasks', 1)",
        "delete('tasks', 2)",
        "metrics('tasks')",
        "list_queues()",
        "purge_queue('tasks')",
        "drop_queue('tasks')",
    ):
        superuser.execute(f"select * from pgmq.{call}")


def test_a_job_of_pg_cron(db: PlantedDatabase) -> None:
    tick = resources.files("headrace") / "sql" / "parts" / "pg_cron" / "tick.sql"
    db.sql("create schema headrace_cron")
    db.sql(tick.read_text())
    db.queue().publish("late", delay=5)
    db.advance(seconds=6)
    unwary(db).execute("call headrace_cron.tick()")
    assert list(db.placement().values()) == [["ready"]]


def test_every_operation_of_the_server(
    db: PlantedDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarding, "PACE", 0.001)
    life = live(db, "here")
    bearer = {"Authorization": f"Bearer {db.queue().create_token('all', ['admin'])}"}
    with serving.running(db) as house, house.client(headers=bearer) as client:
        for name in (*REQUESTS_OF_ALL, *REQUESTS):
            request = prepared(name, life)
            headers = {"Content-Type": "application/json"}
            with client.stream(
                request.method, request.target, content=request.content, headers=headers
            ) as answer:
                assert answer.status_code < 500, name


@pytest.mark.anyio
async def test_a_node_with_handlers_of_every_kind(db: PlantedDatabase) -> None:
    db.sql("create table headrace_test.effects (event bigint)")
    one = node(db)
    done: list[str] = []

    @one.on_event("plain")
    async def plain(event: Any, connection: Any) -> None:
        await connection.execute("insert into headrace_test.effects values (%s)", [event.id])
        path = await connection.execute("show search_path")
        done.append((await path.fetchone())[0])

    @one.on_event("broken", max_retries=0)
    def broken(event: Any) -> None:
        done.append("broken")
        raise ValueError("no")

    queue = db.queue()
    queue.publish("plain")
    queue.publish("broken")
    async with running(one):
        await until(lambda: len(done) == 2)
        await until(lambda: not db.sql("select from headrace.held"))
    # A handler's session is the user's: nothing of ours is left in it.
    assert sorted(done) == ["broken", "public, pg_catalog"]
    assert len(db.sql("select from headrace_test.effects")) == 1


# SQLAlchemy and asyncpg's pools name things without their schemas, too; that is between them and their users.
@pytest.mark.parametrize("library", ["psycopg", "psycopg async", "asyncpg"])
def test_a_callers_own_connection(db: PlantedDatabase, library: str) -> None:
    which = LIBRARIES[library]
    with start_blocking_portal("asyncio") as portal:
        client = Client(db) if which.client == "plain" else AsyncClient(db, portal)
        queue = client.queue()
        with client.within(which.open(db)) as connection:
            caller = Caller(which, client, connection)
            with caller.begin():
                event = queue.publish("order", {"a": 1}, connection=connection)
            with caller.rolled_back():
                queue.publish("order", {"a": 2}, connection=connection)
        assert queue.event(event.id).payload == {"a": 1}
        client.close()


def test_the_doctor(db: PlantedDatabase) -> None:
    live(db, "here")
    found = list(examine(unwary(db), db.dsn))
    assert {one.check for one in found} == {check.name for check in CHECKS}
    assert not [one for one in found if one.state == "unknown"]


def test_the_doctor_of_a_schema_that_a_lower_role_has_prepared(empty_db: PlantedDatabase) -> None:
    empty_db.sql(f"grant create on database {empty_db.name} to mallory")
    empty_db.connect(user="mallory").execute("""
        create schema headrace; grant usage on schema headrace to public;
        create function headrace.version(out major int, out minor int) language plpgsql as
        $$ begin perform public.spring('version'); end $$;
        create view headrace.optional as select ''::text as name, ''::text as digest where public.spring('optional');
        create view headrace.release as select ''::text as digest where public.spring('release');
        create function headrace.locks_in_the_way() returns table (purpose text, pid int, role text, application text)
        language plpgsql as $$ begin perform public.spring('locks_in_the_way'); end $$;
        create function headrace.ids_behind() returns bigint language plpgsql as $$ begin perform public.spring('ids_behind'); end $$;
    """)
    found = {one.check: one for one in examine(unwary(empty_db), empty_db.dsn)}
    assert {"migration", "locks_in_the_way", "numbers", "upkeep", "oldest_ready"} <= {
        name for name, one in found.items() if one.state == "unknown" and "skipped" in one.says
    }
    assert "belongs to mallory" in found["owners"].says


def test_the_doctor_skips_what_has_a_name_of_ours(empty_db: PlantedDatabase) -> None:
    empty_db.sql(f"grant create on database {empty_db.name} to mallory")
    empty_db.connect(user="mallory").execute("create schema headrace")
    patient = database.Database(unwary(empty_db), empty_db.dsn)
    for query in (
        "select headrace._now()",
        "select from headrace.events",
        "select pgmq.list_queues()",
    ):
        with pytest.raises(Distrusted):
            patient.rows(query)
    assert patient.row("select 'headrace.events' as name").name == "headrace.events"


def test_a_function_of_a_lower_role_beside_ours(db: PlantedDatabase, cli: CommandLine) -> None:
    """Without arguments, it is what a call without arguments means: ours have defaults."""
    db.sql("grant create, usage on schema headrace to mallory")
    db.connect(user="mallory").execute("""
        create function headrace.ticking() returns table (stopped boolean, overdue boolean, problem text, at timestamptz, last_at timestamptz)
        language plpgsql as $$ begin perform public.spring('ticking'); end $$;
        create function headrace.repair_ids() returns bigint language plpgsql as $$ begin perform public.spring('repair_ids'); end $$;
    """)
    found = {one.check: one for one in examine(unwary(db), db.dsn)}
    assert "skipped" in found["upkeep"].says
    with pytest.raises(
        SchemaError, match=r"function headrace.* belongs to the role 'mallory'.*drop it"
    ):
        connect(db.dsn)
    assert "belongs to the role 'mallory'" in cli.tried("repair").err


def test_repair_in_a_schema_that_a_lower_role_has_prepared(
    empty_db: PlantedDatabase, capsys: pytest.CaptureFixture[str]
) -> None:
    empty_db.sql(f"grant create on database {empty_db.name} to mallory")
    empty_db.connect(user="mallory").execute("""
        create schema headrace; grant usage on schema headrace to public;
        create function headrace.repair_ids(actor text) returns bigint language plpgsql as
        $$ begin perform public.spring('repair_ids'); end $$;
    """)
    assert "belongs to the role 'mallory'" in CommandLine(empty_db, capsys).tried("repair").err


def test_commands(db: PlantedDatabase, cli: CommandLine) -> None:
    for command in COMMANDS.strip().splitlines():
        cli(*shlex.split(command))
    cli.tried("doctor")
