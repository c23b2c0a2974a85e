"""migrate by a superuser: nothing runs that a lower role has planted, and nothing of its is adopted."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from headrace import connect
from headrace.errors import NotInstallable, SchemaError
from headrace.install.migrate import migrate, script
from tests.planted.planting import PlantedDatabase
from tests.requirements import requirement

PARTS = ("core", "pgmq")
# What a session may have of its own: it comes before pg_catalog in every path that does not name it.
TEMPORARY = """
create view pg_temp.pg_roles as select * from pg_catalog.pg_roles where public.spring('a temporary view');
create view pg_temp.pg_namespace as select * from pg_catalog.pg_namespace where public.spring('a temporary view');
create view pg_temp.pg_class as select * from pg_catalog.pg_class where public.spring('a temporary view');
create domain pg_temp.text as pg_catalog.text check (public.spring('a temporary type'));
create domain pg_temp.jsonb as pg_catalog.jsonb check (public.spring('a temporary type'));
create domain pg_temp.timestamptz as pg_catalog.timestamptz check (public.spring('a temporary type'));
"""
PLANTED_FUNCTION = """
create function public.escalate() returns {result} language plpgsql as
$$ begin perform public.spring('{result}'); end $$
"""


def superuser(db: PlantedDatabase, **options: Any) -> psycopg.Connection:
    connection = psycopg.connect(db.dsn, **{"autocommit": True, **options})
    db._opened.append(connection)
    return connection


def mallory(db: PlantedDatabase) -> psycopg.Connection:
    return db.connect(user="mallory")


def by_function(connection: psycopg.Connection) -> None:
    migrate(connection)


def by_script(connection: psycopg.Connection) -> None:
    connection.execute(script())


each_way = pytest.mark.parametrize("run", [by_function, by_script])
Run = Callable[[psycopg.Connection], None]


@requirement("G22")
class TestNothingRuns:
    def test_migrate(self, empty_db: PlantedDatabase) -> None:
        connection = superuser(empty_db)
        assert migrate(connection, add=PARTS)
        assert not migrate(connection)
        assert migrate(connection, remove=PARTS)

    def test_the_script(self, empty_db: PlantedDatabase) -> None:
        connection = superuser(empty_db)
        for added, removed in ((PARTS, ()), ((), ()), ((), PARTS)):
            connection.execute(script(add=added, remove=removed))

    @each_way
    def test_what_the_session_has_of_its_own(self, empty_db: PlantedDatabase, run: Run) -> None:
        connection = superuser(empty_db)
        connection.execute(TEMPORARY)
        run(connection)

    def test_in_a_callers_transaction_whose_path_stays(self, empty_db: PlantedDatabase) -> None:
        connection = superuser(empty_db, autocommit=False)
        connection.execute("set search_path = public, pg_catalog, headrace")
        assert migrate(connection)
        assert connection.execute("show search_path").fetchone() == (
            "public, pg_catalog, headrace",
        )
        connection.commit()
        assert connection.execute("show search_path").fetchone() == (
            "public, pg_catalog, headrace",
        )


@requirement("G22")
@each_way
class TestNothingIsAdopted:
    """A schema `headrace` that somebody else has prepared, or something in it."""

    def refused(self, db: PlantedDatabase, run: Run, because: str) -> None:
        with pytest.raises((NotInstallable, psycopg.Error), match=because) as refusal:
            run(superuser(db))
        assert getattr(refusal.value, "sqlstate", None) == "QU041"

    def test_a_schema(self, empty_db: PlantedDatabase, run: Run) -> None:
        empty_db.sql(f"grant create on database {empty_db.name} to mallory")
        mallory(empty_db).execute(f"""
            create schema headrace;
            {PLANTED_FUNCTION.format(result="trigger")};
            create table headrace.migrations (version int, name text, applied_at timestamptz);
            create view headrace.release as select 'x' as digest where public.spring('a view');
            create trigger planted before insert on headrace.migrations for each row execute function public.escalate();
            grant all on schema headrace to public; grant all on all tables in schema headrace to public;
        """)
        self.refused(
            empty_db,
            run,
            "The schema headrace belongs to the role mallory, and you are postgres: migrate as",
        )

    @pytest.mark.parametrize(
        ("thing", "name"),
        [
            ("create table headrace.migrations (version int)", "table headrace.migrations"),
            ("create view headrace.release as select 'x' as digest where public.spring('a view')", "view headrace.release"),
            ("create function headrace._now() returns timestamptz language sql as 'select now() where public.spring(''a function'')'",
             r"function headrace._now\(\)"),
            ("create domain headrace.head as text check (public.spring('a type'))", "type headrace.head"),
            ("create sequence headrace.ids", "sequence headrace.ids"),
            ("create operator headrace.= (leftarg = text, rightarg = text, function = public.o98)", "operator headrace.="),
        ],
    )  # fmt: skip
    def test_an_object(self, empty_db: PlantedDatabase, run: Run, thing: str, name: str) -> None:
        empty_db.sql("create schema headrace; grant create, usage on schema headrace to mallory")
        mallory(empty_db).execute(thing)
        self.refused(empty_db, run, f"In the schema headrace, {name}.* belongs to the role mallory")

    def test_a_trigger(self, db: PlantedDatabase, run: Run) -> None:
        db.sql(
            "grant usage on schema headrace to mallory; grant trigger on headrace.namespaces to mallory"
        )
        mallory(db).execute(f"""
            {PLANTED_FUNCTION.format(result="trigger")};
            create trigger planted before insert on headrace.namespaces for each row execute function public.escalate();
        """)  # fmt: skip
        db.sql("delete from headrace.release")
        self.refused(
            db,
            run,
            "The trigger planted on headrace.namespaces runs a function of the role mallory",
        )

    def test_an_event_trigger(self, empty_db: PlantedDatabase, run: Run) -> None:
        mallory(empty_db).execute(PLANTED_FUNCTION.format(result="event_trigger"))
        empty_db.sql(
            "create event trigger planted on ddl_command_start execute function public.escalate()"
        )
        self.refused(empty_db, run, "The event trigger planted runs a function of the role mallory")
        self.drop_event_trigger(empty_db)

    def drop_event_trigger(self, db: PlantedDatabase) -> None:
        db.sql("alter event trigger planted disable")
        migrate(superuser(db))

    def test_a_schema_of_an_optional_part(self, db: PlantedDatabase, run: Run) -> None:
        migrate(superuser(db), add=["pgmq"])
        db.sql("grant create, usage on schema pgmq to mallory")
        mallory(db).execute("create function pgmq.mine() returns int language sql as 'select 1'")
        self.refused(
            db, run, r"In the schema pgmq, function pgmq.mine\(\) belongs to the role mallory"
        )

    def test_a_schema_that_is_made_while_migrate_waits_for_its_turn(
        self, empty_db: PlantedDatabase, run: Run
    ) -> None:
        empty_db.sql(f"grant create on database {empty_db.name} to mallory")
        rival = mallory(empty_db)
        rival.execute("begin; create schema headrace; grant all on schema headrace to public")
        superuser_ = superuser(empty_db)
        with ThreadPoolExecutor(1) as threads:
            running = threads.submit(run, superuser_)
            empty_db.wait_until_blocked(superuser_)
            rival.execute("commit")
            with pytest.raises(
                (NotInstallable, psycopg.Error), match="belongs to the role mallory"
            ):
                running.result()

    def test_a_schema_of_another_kind_is_nobodys_business(
        self, db: PlantedDatabase, run: Run
    ) -> None:
        db.sql("create schema core authorization mallory")
        run(superuser(db))


@requirement("G22")
class TestConnecting:
    """A schema of a lower role whose version is right: to call what is in it would give that role a superuser's rights."""

    @pytest.fixture
    def prepared(self, empty_db: PlantedDatabase) -> PlantedDatabase:
        empty_db.sql(f"grant create on database {empty_db.name} to mallory")
        migrate(mallory(empty_db))
        mallory(empty_db).execute("""
            alter table headrace.release rename to true_release;
            create view headrace.release as select r.* from headrace.true_release r where public.spring('a view');
            grant select on headrace.release to public;
        """)
        return empty_db

    def test_a_superuser_is_refused(self, prepared: PlantedDatabase) -> None:
        with pytest.raises(
            SchemaError, match="the schema headrace belongs to the role 'mallory', and 'postgres'"
        ):
            connect(prepared.dsn)

    def test_its_owner_is_not(self, prepared: PlantedDatabase) -> None:
        with connect(make_conninfo(prepared.dsn, user="mallory")) as queue:
            assert queue.publish("a").id == 1
