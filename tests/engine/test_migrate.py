"""Bringing a database to this release: from nothing, from before, from many places at once, or not at all."""

import re
import subprocess
from collections.abc import Iterator
from threading import Barrier
from typing import ClassVar

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

import headrace.install.migrate
from headrace.errors import SchemaError, SchemaMismatch, SchemaMissing
from headrace.install.migrate import check_version, migrate, script
from tests.database import Database, Server
from tests.engine.catalogue import readable_catalogue, whole_catalogue
from tests.engine.races_helpers import Background
from tests.house import golden

ROLES = ("headrace_publisher", "headrace_worker", "headrace_reader", "headrace_admin")


@pytest.fixture
def installed(server: Server, empty_db: Database) -> Database:
    """A database as this release makes it: with the clock that it comes with."""
    migrate(empty_db.connect())
    return empty_db


@pytest.fixture(scope="module")
def upgraded(server: Server) -> Iterator[Database]:
    """A database that is aged and upgraded again and again, and is as fresh after each time."""
    database = Database(server, server.create_database())
    migrate(database.connect())
    yield database
    database.close()
    server.drop_database(database.name)


@pytest.fixture(scope="module")
def fresh(server: Server) -> Iterator[list[str]]:
    """The catalogue of a fresh installation."""
    database = Database(server, server.create_database())
    migrate(database.connect())
    yield whole_catalogue(database)
    database.close()
    server.drop_database(database.name)


def age(db: Database, *declared: str) -> None:
    """Let it have been installed by some earlier release, which declared these otherwise."""
    otherwise = dict.fromkeys(declared, "otherwise")
    db.sql(
        "update headrace.release set digest = 'of an earlier release',"
        " declarations = declarations || %s",
        [Jsonb(otherwise)],
    )


def works(db: Database) -> bool:
    db.sql("""select headrace.publish('default', '{"type": "a", "payload": {}}')""")
    [(event, attempt)] = db.sql("select id, attempt from headrace.poll('default')")
    db.sql("select headrace.complete('default', %s, %s)", [event, attempt])
    return db.sql("select status from headrace.event('default', %s)", [event]) == [("COMPLETED",)]


class TestAgain:
    def test_the_second_run_changes_nothing_and_says_so(
        self, installed: Database, fresh: list[str]
    ) -> None:
        written = "select xmin::text, installed_at from headrace.release"
        before = installed.sql(written)
        assert migrate(installed.connect()) is False
        assert installed.sql(written) == before
        assert whole_catalogue(installed) == fresh

    def test_it_commits_on_a_connection_that_is_not_in_autocommit(self, empty_db: Database) -> None:
        connection = empty_db.connect(autocommit=False)
        assert migrate(connection) is True
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        assert works(empty_db)

    def test_inside_a_callers_transaction_it_is_the_callers_to_roll_back(
        self, empty_db: Database
    ) -> None:
        connection = empty_db.connect()
        with connection.transaction(force_rollback=True):
            assert migrate(connection) is True
        assert empty_db.sql("select to_regnamespace('headrace')") == [(None,)]
        with connection.transaction():
            assert migrate(connection) is True
        assert works(empty_db)

    def test_a_function_that_a_view_calls_is_replaced_with_the_view(
        self, installed: Database, fresh: list[str]
    ) -> None:
        age(installed, "function place")
        assert migrate(installed.connect()) is True
        assert whole_catalogue(installed) == fresh

    def test_an_upgrade_inside_a_savepoint_drops_what_is_left_over_and_nothing_else(
        self, installed: Database, fresh: list[str]
    ) -> None:
        age(installed)
        installed.sql("create function headrace.forgotten() returns int language sql as 'select 1'")
        connection = installed.connect()
        with connection.transaction(), connection.transaction():
            assert migrate(connection) is True
        assert whole_catalogue(installed) == fresh


class TestAtOnce:
    @pytest.mark.parametrize("level", ["READ_COMMITTED", "REPEATABLE_READ", "SERIALIZABLE"])
    def test_ten_on_an_empty_database_make_one_schema(self, empty_db: Database, level: str) -> None:
        start = Barrier(10)

        def run(connection: psycopg.Connection) -> bool:
            connection.isolation_level = psycopg.IsolationLevel[level]
            start.wait()
            return migrate(connection)

        runs = [Background(run, empty_db.connect()) for _ in range(10)]
        assert sorted(run.result() for run in runs) == [False] * 9 + [True]
        assert works(empty_db)

    def test_ten_on_an_older_schema_upgrade_it_once(
        self, installed: Database, fresh: list[str]
    ) -> None:
        age(installed)
        runs = [Background(migrate, installed.connect()) for _ in range(10)]
        assert sorted(run.result() for run in runs) == [False] * 9 + [True]
        assert whole_catalogue(installed) == fresh


class TestWithoutSuperuser:
    """The owner of a database is enough; roles belong to the server and may be beyond an owner's reach."""

    @pytest.fixture(params=["present", "absent"])
    def roles(self, server: Server, request: pytest.FixtureRequest) -> Iterator[str]:
        if request.param == "present":
            yield "present"
            return
        with psycopg.connect(server.dsn, autocommit=True) as admin:
            for role in ROLES:
                admin.execute(f"alter role {role} rename to hidden_{role}")
            yield "absent"
            for role in ROLES:
                admin.execute(f"drop role if exists {role}")
                admin.execute(f"alter role hidden_{role} rename to {role}")

    @pytest.fixture(params=["nocreaterole", "createrole"])
    def owner(self, server: Server, request: pytest.FixtureRequest) -> Iterator[str]:
        with psycopg.connect(server.dsn, autocommit=True) as admin:
            admin.execute(f"create role owner_of_one login {request.param}")
            yield "owner_of_one"
            # What it has made is gone with its database.
            admin.execute("drop owned by owner_of_one cascade")
            admin.execute("drop role owner_of_one")

    def test_the_owner_of_a_database_installs_and_upgrades(
        self, roles: str, owner: str, empty_db: Database
    ) -> None:
        empty_db.sql(
            sql.SQL("alter database {} owner to {}")
            .format(sql.Identifier(empty_db.name), sql.Identifier(owner))
            .as_string()
        )
        connection = empty_db.connect(user=owner)
        notices: list[str] = []
        connection.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
        assert migrate(connection) is True
        assert works(empty_db)
        # Where it may not make them it says so, role by role; where they are there, they may do their work.
        there = {name for (name,) in empty_db.sql("select rolname from pg_roles")} & set(ROLES)
        may_make = connection.execute(
            "select rolcreaterole from pg_roles where rolname = current_user"
        ).fetchone() == (True,)
        assert there == (set() if roles == "absent" and not may_make else set(ROLES))
        missing = [role for role in ROLES if any(role in notice for notice in notices)]
        assert missing == [role for role in ROLES if role not in there]
        for role in there:
            assert empty_db.sql(
                "select has_function_privilege(%s, 'headrace.version()', 'execute')", [role]
            ) == [(True,)]
        age(empty_db)
        assert migrate(connection) is True
        assert works(empty_db)

    def test_somebody_without_rights_is_refused_and_leaves_nothing(
        self, owner: str, empty_db: Database
    ) -> None:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            migrate(empty_db.connect(user=owner))
        assert empty_db.sql("select to_regnamespace('headrace')") == [(None,)]


class TestScript:
    @staticmethod
    def run(db: Database, text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                db.server.binaries / "psql",
                "--no-psqlrc",
                "--quiet",
                "-v",
                "ON_ERROR_STOP=1",
                db.dsn,
            ],
            input=text,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def test_through_psql_it_makes_what_migrate_makes(
        self, empty_db: Database, fresh: list[str]
    ) -> None:
        for _ in range(2):
            ran = self.run(empty_db, script())
            assert ran.returncode == 0, ran.stderr
            assert whole_catalogue(empty_db) == fresh
        assert migrate(empty_db.connect()) is False
        assert works(empty_db)

    def test_it_upgrades_too(self, installed: Database, fresh: list[str]) -> None:
        age(installed)
        installed.sql("create function headrace.forgotten() returns int language sql as 'select 1'")
        ran = self.run(installed, script())
        assert ran.returncode == 0, ran.stderr
        assert whole_catalogue(installed) == fresh

    def test_it_does_not_put_an_old_release_over_a_newer_one(self, installed: Database) -> None:
        installed.sql("insert into headrace.migrations values (9999, 'from the future', now())")
        age(installed)
        ran = self.run(installed, script())
        assert ran.returncode != 0
        assert "newer release" in ran.stderr
        assert installed.sql("select digest from headrace.release") == [("of an earlier release",)]


VERSIONS = [version for version, _, _ in headrace.install.migrate._migrations()]


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later release, which has two migrations more than this one."""
    newest = VERSIONS[-1]
    migrations = [
        *headrace.install.migrate._migrations(),
        (newest + 1, "a_column", "alter table headrace.settings add column note text;"),
        (newest + 2, "a_table", "create table headrace.remarks (note text not null);"),
    ]
    monkeypatch.setattr(headrace.install.migrate, "_migrations", lambda: migrations)
    monkeypatch.setattr(
        headrace.install.migrate, "_steps", headrace.install.migrate._steps.__wrapped__
    )
    monkeypatch.setattr(headrace.install.migrate, "_digest", lambda: "of a later release")


class TestLater:
    """Migrations after version 1: each is applied once, forward only."""

    @pytest.mark.usefixtures("later")
    @pytest.mark.parametrize("last", [*VERSIONS, VERSIONS[-1] + 1])
    def test_from_every_earlier_migration_it_ends_where_a_fresh_one_does(
        self, server: Server, empty_db: Database, last: int
    ) -> None:
        other = Database(server, server.create_database())
        migrate(other.connect())
        fresh = whole_catalogue(other)
        other.close()
        server.drop_database(other.name)
        connection = empty_db.connect()
        connection.execute(headrace.install.migrate.BEGINNING)
        connection.execute(headrace.install.migrate.opening(last))
        for version, name, body in headrace.install.migrate._migrations():
            if version <= last:
                connection.execute(
                    headrace.install.migrate._MIGRATION.format(
                        version=version, name=name, body=body
                    )
                )
        assert empty_db.sql("select max(version) from headrace.migrations") == [(last,)]
        assert migrate(connection) is True
        assert whole_catalogue(empty_db) == fresh
        assert works(empty_db)
        assert empty_db.sql("select version from headrace.migrations order by 1") == [
            (version,) for version in [*VERSIONS, VERSIONS[-1] + 1, VERSIONS[-1] + 2]
        ]
        assert empty_db.sql("select minor from headrace.version()") == [(VERSIONS[-1] + 2,)]

    def test_this_release_leaves_a_database_of_the_later_one_alone(
        self, empty_db: Database, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        request.getfixturevalue("later")
        migrate(empty_db.connect())
        monkeypatch.undo()
        with pytest.raises(SchemaMismatch, match="newer release of Headrace"):
            migrate(empty_db.connect())


class TestUpgrade:
    LEFTOVERS: ClassVar = {
        "a function": "create function headrace.forgotten() returns int language sql as 'select 1'",
        "an overload": "create function headrace.publish(text) returns int language sql as 'select 1'",
        "a procedure": "create procedure headrace.forgotten() language sql as 'select 1'",
        "a view": "create view headrace.forgotten as select 1 as one",
        "a view on one of ours": "create view headrace.forgotten as table headrace.event_queue",
        "a view that calls a function": """
            create function headrace.forgotten() returns int language sql as 'select 1';
            create view headrace.forgotten_view as select headrace.forgotten()
        """,
        "a function that returns a view's rows": """
            create view headrace.forgotten_view as select 1 as one;
            create function headrace.forgotten() returns setof headrace.forgotten_view
                language sql as 'select 1'
        """,
        "views upon views": """
            create view headrace.forgotten as select 1 as one;
            create view headrace.forgotten_too as table headrace.forgotten
        """,
        "a view that was replaced later than one upon it": """
            create view headrace.forgotten_too as select 1 as one;
            create view headrace.forgotten as select 1 as one;
            create or replace view headrace.forgotten_too as table headrace.forgotten
        """,
    }

    @pytest.mark.parametrize("leftover", LEFTOVERS)
    def test_what_this_release_no_longer_has_is_dropped(
        self, upgraded: Database, fresh: list[str], leftover: str
    ) -> None:
        age(upgraded)
        upgraded.sql(self.LEFTOVERS[leftover])
        assert whole_catalogue(upgraded) != fresh
        assert migrate(upgraded.connect()) is True
        assert whole_catalogue(upgraded) == fresh

    # What an earlier release had, and what of it was declared otherwise: replacing cannot change that.
    CHANGES: ClassVar = {
        "a function's body": """
            create or replace function headrace.version(out major int, out minor int)
                language sql as 'select 7, 7'
        """,
        "a function's result": (
            """
            drop function headrace.version();
            create function headrace.version() returns text language sql as $$ select '7' $$
            """,
            "function version",
        ),
        "a function's columns": (
            """
            drop function headrace.event_log(text, bigint);
            create function headrace.event_log(namespace text, event_id bigint) returns table (id bigint)
                language sql as 'select 1::bigint'
            """,
            "function event_log",
        ),
        "the name of an argument": (
            """
            drop function headrace._setting(text);
            create function headrace._setting(called text) returns text language sql as 'select called'
            """,
            "function _setting",
        ),
        "an argument more": (
            """
            drop function headrace._setting(text);
            create function headrace._setting(name text, more int) returns text language sql as 'select name'
            """,
            "function _setting",
        ),
        "a default that is no more": (
            """
            drop function headrace._setting(text);
            create function headrace._setting(name text default 'x') returns text language sql as 'select name'
            """,
            "function _setting",
        ),
        "a procedure instead of a function": (
            """
            drop function headrace._setting(text);
            create procedure headrace._setting(name text) language sql as 'select 1'
            """,
            "function _setting",
        ),
        "a function's settings": "alter function headrace.poll reset all",
        "a function's rights": "alter function headrace.publish security invoker",
        "a view's columns": (
            """
            drop view headrace.event_log;
            create view headrace.event_log as select 1 as one, 2 as two
            """,
            "view event_log",
        ),
        "a view others stand on": (
            """
            drop view headrace.event_log, headrace.log_entries;
            create view headrace.log_entries as select 1 as one;
            create view headrace.event_log as select one from headrace.log_entries
            """,
            "view event_log",
            "view log_entries",
        ),
        "a view whose row type a function returns": (
            """
            drop view headrace.event_log, headrace.log_entries, headrace.event_queue, headrace.deliveries;
            create view headrace.deliveries as select 1 as one;
            create function headrace.moved(event bigint) returns setof headrace.deliveries language sql as 'select 1'
            """,
            "view deliveries",
        ),
        "a view that calls a function of ours": (
            """
            drop view headrace.event_log;
            create view headrace.event_log as select headrace._setting('retention') as kept
            """,
            "view event_log",
            "function _setting",
        ),
        "what PUBLIC may": "grant execute on function headrace.publish to public",
        "what a role of ours may": "grant execute on function headrace.configure to headrace_reader",
        "what a role of ours may on tables": "grant insert on headrace.ready to headrace_publisher",
    }

    @pytest.mark.parametrize("change", CHANGES)
    def test_what_an_earlier_release_had_otherwise_is_replaced(
        self, upgraded: Database, fresh: list[str], change: str
    ) -> None:
        before = self.CHANGES[change]
        made, *declared = [before] if isinstance(before, str) else before
        age(upgraded, *declared)
        upgraded.sql(made)
        assert whole_catalogue(upgraded) != fresh
        assert migrate(upgraded.connect()) is True
        assert whole_catalogue(upgraded) == fresh
        assert works(upgraded)

    def test_what_can_be_replaced_in_place_keeps_its_identity(self, installed: Database) -> None:
        oids = "select proname, oid from pg_proc where pronamespace = 'headrace'::regnamespace order by 2"
        before = installed.sql(oids)
        age(installed)
        installed.sql("alter function headrace.poll reset all")
        migrate(installed.connect())
        assert installed.sql(oids) == before

    def test_somebodys_view_on_ours_survives_an_upgrade_that_changes_no_view(
        self, installed: Database
    ) -> None:
        installed.sql("create view public.mine as select id, status from headrace.event_queue")
        age(installed, "function stats", "function version")
        assert migrate(installed.connect()) is True
        assert installed.sql("select count(*) from public.mine") == [(0,)]

    def test_somebodys_view_in_the_way_is_named_and_everything_stays_as_it_was(
        self, installed: Database
    ) -> None:
        installed.sql("create view public.mine as select id, status from headrace.event_queue")
        age(installed, "view event_queue")
        before = whole_catalogue(installed)
        with pytest.raises(
            psycopg.errors.DependentObjectsStillExist, match=r"view (public\.)?mine"
        ):
            migrate(installed.connect())
        assert whole_catalogue(installed) == before
        assert works(installed)
        installed.sql("drop view public.mine")
        assert migrate(installed.connect()) is True

    def test_what_somebody_granted_to_his_own_role_stays(
        self, installed: Database, server: Server
    ) -> None:
        installed.sql("create role an_application nologin")
        try:
            installed.sql("grant usage on schema headrace to an_application")
            installed.sql("grant execute on function headrace.publish to an_application")
            age(installed)
            migrate(installed.connect())
            assert installed.sql(
                "select has_function_privilege('an_application', 'headrace.publish(text,jsonb,boolean)', 'execute')"
            ) == [(True,)]
        finally:
            installed.sql("drop owned by an_application; drop role an_application")

    def test_events_settings_and_namespaces_stay(self, installed: Database) -> None:
        installed.sql("select headrace.create_namespace('mine')")
        installed.sql("select headrace.configure('retention', '9 months')")
        [(ids,)] = installed.sql("select ids from headrace.publish('mine', '[{}, {}, {}]')")
        installed.sql("select * from headrace.poll('mine')")
        age(installed)
        migrate(installed.connect())
        assert installed.sql("select headrace._setting('retention')") == [("9 months",)]
        claimed = installed.sql("select id from headrace.poll('mine', max_events => 9)")
        assert claimed == [(id,) for id in ids[1:]]


class TestRefusals:
    def test_a_newer_schema_is_left_alone_with_a_sentence(self, installed: Database) -> None:
        installed.sql("insert into headrace.migrations values (9999, 'from the future', now())")
        age(installed)
        before = whole_catalogue(installed)
        with pytest.raises(
            SchemaMismatch, match="newer release of Headrace: upgrade the headrace package"
        ):
            migrate(installed.connect())
        assert whole_catalogue(installed) == before

    DEVELOPMENT: ClassVar = {
        "of numbered files": """
            update headrace.migrations set name = 'places' where version = 1;
            insert into headrace.migrations select n, 'more', now() from generate_series(2, 20) n
        """,
        "of other schema files": "update headrace.migrations set name = 'schema 0123456789ab'",
    }

    @pytest.mark.parametrize("kind", DEVELOPMENT)
    @pytest.mark.parametrize("way", ["migrate", "script"])
    def test_a_development_schema_is_left_alone_with_a_sentence(
        self, installed: Database, kind: str, way: str
    ) -> None:
        installed.sql(self.DEVELOPMENT[kind])
        age(installed)
        before = whole_catalogue(installed)
        sentence = "development schema of Headrace.* Drop schema headrace and migrate again"
        if way == "migrate":
            with pytest.raises(SchemaMismatch, match=sentence):
                migrate(installed.connect())
        else:
            assert re.search(sentence, TestScript.run(installed, script()).stderr)
        assert whole_catalogue(installed) == before
        installed.sql("drop schema headrace cascade")
        assert migrate(installed.connect()) is True
        assert works(installed)

    def test_a_comment_makes_no_other_schema_and_a_column_does(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        name = headrace.install.migrate.schema_name.__wrapped__

        def of(text: str) -> str:
            monkeypatch.setattr(headrace.install.migrate, "files", lambda folder: [("1_a", text)])
            return name()

        plain = of("create table a (b int);")
        assert of("/* An\n essay. */\ncreate table a (  -- what for\n    b int);\n") == plain
        assert of("create table a (b int, c int);") != plain

    def test_a_database_without_the_schema_is_told_how_to_get_it(self) -> None:
        with pytest.raises(SchemaMissing, match=r"no Headrace schema; `headrace migrate`"):
            check_version(None)

    def test_a_newer_major_asks_for_a_newer_package(self) -> None:
        major = headrace.install.migrate.SCHEMA_MAJOR + 1
        with pytest.raises(
            SchemaMismatch, match=rf"version {major}\.4 .* upgrade the headrace package"
        ):
            check_version((major, 4))

    def test_an_older_major_asks_for_a_migration(self) -> None:
        with pytest.raises(SchemaMismatch, match=r"version 0\.4 .* run `headrace migrate`"):
            check_version((0, 4))

    def test_what_migrate_has_made_is_the_version_this_release_works_with(
        self, installed: Database
    ) -> None:
        [row] = installed.sql("select major, minor from headrace.version()")
        check_version(row)
        assert row == (
            headrace.install.migrate.SCHEMA_MAJOR,
            headrace.install.migrate._migrations()[-1][0],
        )


class TestFailure:
    @pytest.mark.parametrize("place", ["first", "last"])
    def test_a_statement_that_fails_leaves_an_empty_database_empty(
        self, empty_db: Database, monkeypatch: pytest.MonkeyPatch, place: str
    ) -> None:
        steps = headrace.install.migrate._steps()
        broken = [*steps, "select 1/0"] if place == "last" else ["select 1/0", *steps]
        monkeypatch.setattr(headrace.install.migrate, "_steps", lambda: broken)
        with pytest.raises(psycopg.errors.DivisionByZero):
            migrate(empty_db.connect())
        assert empty_db.sql("select to_regnamespace('headrace')") == [(None,)]

    def test_a_statement_that_fails_leaves_an_older_schema_as_it_was(
        self, installed: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        age(installed)
        installed.sql("create function headrace.forgotten() returns int language sql as 'select 1'")
        before = whole_catalogue(installed)
        broken = [*headrace.install.migrate._steps(), "select 1/0"]
        monkeypatch.setattr(headrace.install.migrate, "_steps", lambda: broken)
        with pytest.raises(psycopg.errors.DivisionByZero):
            migrate(installed.connect())
        assert whole_catalogue(installed) == before
        assert works(installed)
        monkeypatch.undo()
        assert migrate(installed.connect()) is True

    def test_a_session_that_dies_in_the_middle_leaves_nothing_and_no_lock(
        self, empty_db: Database
    ) -> None:
        connection = empty_db.connect(autocommit=False)
        connection.execute(headrace.install.migrate.BEGINNING)
        connection.execute(headrace.install.migrate.LOCK)
        empty_db.sql("select pg_terminate_backend(%s)", [connection.info.backend_pid])
        assert migrate(empty_db.connect()) is True
        assert works(empty_db)


class TestWhoIsInTheWay:
    """Who waits for another migration does not do so for ever, and says whom he waited for."""

    @pytest.fixture
    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(headrace.install.migrate, "PATIENCE", 0.05)

    @pytest.mark.usefixtures("impatient")
    @pytest.mark.parametrize("is_there", [False, True])
    def test_is_named(self, empty_db: Database, is_there: bool) -> None:
        if is_there:
            migrate(empty_db.connect())
            age(empty_db)
        first = empty_db.connect(autocommit=False, application_name="the_first")
        first.execute(headrace.install.migrate.BEGINNING)
        first.execute(headrace.install.migrate.LOCK)
        who = rf"process {first.info.backend_pid} \(role {first.info.user}, application the_first\)"
        second = empty_db.connect()
        with pytest.raises(SchemaError, match=who):
            migrate(second)
        first.rollback()
        assert migrate(second) is True
        assert works(empty_db)

    @pytest.mark.parametrize("bound", ["0", "7s"])
    def test_the_caller_s_own_bound_is_what_it_was(self, empty_db: Database, bound: str) -> None:
        with empty_db.connect(autocommit=False) as connection:
            connection.execute("select set_config('lock_timeout', %s, false)", [bound])
            migrate(connection)
            assert connection.execute("show lock_timeout").fetchone() == (bound,)


def test_the_catalogue_is_the_one_that_was_looked_at(installed: Database) -> None:
    """A change of the schema is a change of catalogue.txt; HEADRACE_WRITE_CATALOGUE=1 writes it anew."""
    golden.check(
        readable_catalogue(installed), "../engine/catalogue.txt", "HEADRACE_WRITE_CATALOGUE"
    )


def test_a_database_in_another_encoding_is_refused_with_a_sentence(server: Server) -> None:
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute("create database in_latin1 template template0 encoding 'LATIN1' locale 'C'")
        try:
            with (
                psycopg.connect(server.dsn_of("in_latin1"), autocommit=True) as connection,
                pytest.raises(SchemaError, match="needs a database with encoding UTF8; this one"),
            ):
                migrate(connection)
        finally:
            admin.execute("drop database in_latin1 with (force)")
