"""Optional parts of the schema: installed on request, kept up to date by every migrate, removed without a trace."""

import subprocess
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.types.json import Jsonb

from headrace import InvalidInput, NotInstallable
from headrace.install.migrate import migrate, script
from headrace.install.parts import PARTS
from tests.database import Database, Server
from tests.engine.catalogue import whole_catalogue

OBJECTS = """
select 'function', p.oid::regprocedure::text from pg_proc p where p.pronamespace = to_regnamespace(%(schema)s)
union all
select c.relkind::text, c.relname::text from pg_class c where c.relnamespace = to_regnamespace(%(schema)s)
order by 1, 2
"""


@pytest.fixture(scope="module")
def shared(server: Server) -> Iterator[Database]:
    database = Database(server, server.create_database(template=Server.TEMPLATE))
    yield database
    database.close()
    server.drop_database(database.name)


@pytest.fixture
def with_core(shared: Database) -> Database:
    """A database with the part core, as this release has it."""
    migrate(shared.connect(), add=["core"])
    return shared


def objects(db: Database, schema: str = "core") -> list[tuple[str, str]]:
    return db.sql(OBJECTS, {"schema": schema})


def age(db: Database, *declared: str) -> None:
    """Let the part have been installed by some earlier release, which declared these otherwise."""
    db.sql(
        "update headrace.optional set digest = 'of an earlier release', declarations = declarations || %s",
        [Jsonb(dict.fromkeys(declared, "otherwise"))],
    )


def test_a_part_is_added_once_and_is_nowhere_before(db: Database) -> None:
    before = whole_catalogue(db)
    assert migrate(db.connect()) is False
    assert db.sql("select to_regnamespace('core')") == [(None,)]
    assert migrate(db.connect(), add=["core"]) is True
    assert db.sql("select name from headrace.optional") == [("core",)]
    assert migrate(db.connect(), add=["core"]) is False
    assert migrate(db.connect()) is False
    assert whole_catalogue(db) == before


def test_a_part_is_removed_without_a_trace(db: Database) -> None:
    before = whole_catalogue(db)
    migrate(db.connect(), add=["core"])
    assert migrate(db.connect(), remove=["core"]) is True
    assert db.sql("select to_regnamespace('core')") == [(None,)]
    assert db.sql("select * from headrace.optional") == []
    assert migrate(db.connect(), remove=["core"]) is False
    assert whole_catalogue(db) == before


def test_every_later_migrate_brings_it_up_to_date_and_drops_what_left_the_release(
    with_core: Database,
) -> None:
    fresh = objects(with_core)
    with_core.sql("create function core.forgotten() returns int language sql as 'select 1'")
    with_core.sql("create view core.forgotten_too as table core.event_log")
    with_core.sql("create or replace function core.queue_name_for_namespace(p_namespace text)"
                  " returns text language sql as 'select null'")  # fmt: skip
    age(with_core)
    assert migrate(with_core.connect()) is True
    assert objects(with_core) == fresh
    assert with_core.sql("select core.queue_name_for_namespace('a-b')") == [("core_events_a_b",)]


def test_what_cannot_be_replaced_is_dropped_before(with_core: Database) -> None:
    fresh = objects(with_core)
    with_core.sql("""
        drop view core.namespaces;
        create view core.namespaces as select 1 as one;
        drop function core.run_scheduled_task(uuid);
        create function core.run_scheduled_task(task uuid) returns text language sql as 'select null'
    """)
    age(with_core, "view namespaces", "function run_scheduled_task")
    assert migrate(with_core.connect()) is True
    assert objects(with_core) == fresh
    assert with_core.sql("select namespace from core.namespaces") == [("default",)]


def test_what_can_be_replaced_keeps_its_identity(with_core: Database) -> None:
    oids = "select oid, proname from pg_proc where pronamespace = 'core'::regnamespace order by 1"
    before = with_core.sql(oids)
    age(with_core)
    migrate(with_core.connect())
    assert with_core.sql(oids) == before


def test_a_part_does_not_keep_the_schema_itself_from_being_replaced(with_core: Database) -> None:
    """All views and every function of the schema may change in an upgrade, and a part stands on none of them."""
    with_core.sql("""
        update headrace.release set digest = 'of an earlier release', declarations = (
            select jsonb_object_agg(key, 'otherwise') from jsonb_each(declarations))
    """)
    assert migrate(with_core.connect()) is True
    assert with_core.sql("select namespace from core.namespaces") == [("default",)]


@pytest.mark.parametrize("part", ["core", "pgmq"])
def test_what_belongs_to_somebody_else_is_left_alone(db: Database, part: str) -> None:
    schema = PARTS[part]
    db.sql(f"create schema {schema} create table ours (id int)")
    with pytest.raises(NotInstallable, match=f"There is a schema {schema} already"):
        migrate(db.connect(), add=[part])
    assert db.sql("select * from headrace.optional") == []
    assert objects(db, schema) == [("r", "ours")]


@pytest.mark.parametrize(
    ("part", "reason"),
    [("partman", "This database is without pg_partman"), ("pg_cron", "runs without pg_cron")],
)
def test_what_is_missing_is_said(shared: Database, part: str, reason: str) -> None:
    """Where the extensions are, in tests/extensions, it is not."""
    with pytest.raises(NotInstallable, match=reason):
        migrate(shared.connect(), add=[part])
    assert shared.sql("select to_regnamespace(%s)", [PARTS[part]]) == [(None,)]


def test_what_stands_on_a_part_keeps_it_from_being_removed(with_core: Database) -> None:
    with_core.sql("create view public.mine as table core.event_log")
    with pytest.raises(
        psycopg.errors.DependentObjectsStillExist, match="an object of yours depends on"
    ):
        migrate(with_core.connect(), remove=["core"])
    assert with_core.sql("select count(*) from public.mine") == [(0,)]
    with_core.sql("drop view public.mine")


def test_an_unknown_part_is_refused(shared: Database) -> None:
    with pytest.raises(InvalidInput, match="no optional part 'kernel': choose from core, "):
        migrate(shared.connect(), add=["kernel"])
    with pytest.raises(InvalidInput, match="core is both in add and in remove"):
        migrate(shared.connect(), add=["core"], remove=["core"])


def test_nobody_may_use_a_part_but_the_roles_that_it_names(with_core: Database) -> None:
    with_core.sql("grant all on core.event_log to public")
    with_core.sql("grant execute on all functions in schema core to public")
    age(with_core)
    migrate(with_core.connect())
    may = "select has_function_privilege(%s, 'core.append_event_log(text,text,jsonb,text,uuid,jsonb)', 'execute')"
    assert with_core.sql(may, ["headrace_publisher"]) == [(True,)]
    assert with_core.sql(may, ["headrace_reader"]) == [(False,)]
    read = "select has_table_privilege(%s, 'core.event_log', 'select')"
    assert with_core.sql(read, ["headrace_reader"]) == [(True,)]
    assert with_core.sql(read, ["headrace_publisher"]) == [(False,)]


def test_public_may_do_nothing_in_any_part_and_each_function_fixes_its_search_path(
    shared: Database,
) -> None:
    """(Of the parts that an extension is needed for, too: see tests/extensions.)"""
    migrate(shared.connect(), add=["core", "pgmq"])
    ours = ["headrace", "core", "pgmq"]
    routines = shared.sql(
        "select oid::regprocedure::text, pronamespace::regnamespace::text,"
        " has_function_privilege('public', oid, 'execute'), coalesce(proconfig, '{}')"
        " from pg_proc where pronamespace = any (%s::regnamespace[])",
        [ours],
    )
    assert {schema for _, schema, *_ in routines} == set(ours)
    assert [name for name, _, public, _ in routines if public] == []
    fixed = "search_path=pg_catalog, pg_temp"  # headrace's own: see TestSearchPath in test_roles
    parts = [(name, its) for name, schema, _, its in routines if schema != "headrace"]
    assert [name for name, its in parts if fixed not in its] == []
    readable = shared.sql(
        "select oid::regclass::text from pg_class where relnamespace = any (%s::regnamespace[])"
        " and relkind in ('r', 'p', 'v', 'm', 'S')"
        " and (relkind <> 'S' and has_table_privilege('public', oid, 'select, insert, update, delete')"
        "   or relkind = 'S' and has_sequence_privilege('public', oid, 'usage, select, update'))",
        [ours],
    )
    assert readable == []
    migrate(shared.connect(), remove=["core", "pgmq"])


class TestScript:
    @staticmethod
    def run(db: Database, text: str) -> None:
        psql = [db.server.binaries / "psql", "--no-psqlrc", "--quiet", "-v", "ON_ERROR_STOP=1"]
        ran = subprocess.run(
            [*psql, db.dsn], input=text, capture_output=True, text=True, timeout=60, check=False
        )
        assert ran.returncode == 0, ran.stderr

    def test_through_psql_it_does_what_migrate_does(self, db: Database) -> None:
        self.run(db, script())
        assert db.sql("select * from headrace.optional") == []
        self.run(db, script(add=["core", "pgmq"]))
        assert migrate(db.connect(), add=["core", "pgmq"]) is False
        fresh = objects(db)
        assert len(fresh) == 22
        db.sql("create function core.forgotten() returns int language sql as 'select 1'")
        age(db)
        self.run(db, script())  # whoever runs it need not know what is there
        assert objects(db) == fresh
        self.run(db, script(remove=["core", "pgmq"]))
        assert db.sql("select to_regnamespace('core'), to_regnamespace('pgmq')") == [(None, None)]
