"""Each check is made true, and, where the command that mends it can be run, is mended by it."""

import os
import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.doctor import (
    CHECKS,
    Diagnosis,
    Limits,
    examine,
)
from headrace.doctor.checks import connection as connection_checks
from headrace.doctor.checks import schema, server
from headrace.embedded import EmbeddedPostgres
from headrace.install.migrate import migrate
from tests.database import Database, Server
from tests.folders import short_folder
from tests.pooler import pgbouncer
from tests.requirements import requirement

NOTHING = timedelta(0)


def look(
    db: Database,
    check: str,
    *,
    dsn: str | None = None,
    clock: Callable[[], float] = time.time,
    limits: dict[str, Any] | None = None,
    **connection: Any,
) -> list[Diagnosis]:
    """What one check says."""
    [wanted] = [known for known in CHECKS if known.name == check]
    kept = replace(Limits(), **(limits or {}))
    with db.connect(**connection) as own:
        return list(examine(own, dsn or db.dsn, checks=[wanted], limits=kept, clock=clock))


def one(db: Database, check: str, **options: Any) -> Diagnosis:
    [finding] = look(db, check, **options)
    return finding


def mend(db: Database, finding: Diagnosis) -> None:
    assert finding.mend is not None
    db.sql(finding.mend)


class TestPostgres:
    @pytest.mark.parametrize(("major", "state"), [(14, "problem"), (15, "fine"), (19, "warning")])
    def test_version(self, major: int, state: str) -> None:
        assert server.judged_version(major).state == state

    def test_encoding(self, server: Server) -> None:
        name = server.create_database()
        try:
            admin = psycopg.connect(server.dsn, autocommit=True)
            admin.execute(
                f"create database {name}_latin encoding 'LATIN1' locale 'C' template template0"
            )
            found = one(Database(server, f"{name}_latin"), "encoding")
            assert (found.state, "LATIN1" in found.says) == ("problem", True)
            admin.close()
        finally:
            server.drop_database(f"{name}_latin")
            server.drop_database(name)

    @pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
    @requirement("G1")
    def test_what_keeps_data_over_a_crash(self, db: Database, setting: str) -> None:
        """Off for the tests' own server, which wants to be quick; on for the one that a command starts: test_command."""
        found = one(db, setting)
        assert found.state == "problem"
        assert found.mend is not None
        assert setting in found.mend

    @pytest.mark.parametrize(
        ("check", "setting", "value", "state"),
        [
            ("synchronous_commit", "synchronous_commit", "off", "problem"),
            ("isolation", "default_transaction_isolation", "serializable", "warning"),
            ("writable", "default_transaction_read_only", "on", "problem"),
        ],
    )
    def test_settings_are_mended_where_they_were_made(
        self, db: Database, check: str, setting: str, value: str, state: str
    ) -> None:
        assert one(db, check).state == "fine"
        db.sql(f"alter database {db.name} set {setting} = '{value}'")
        found = one(db, check)
        assert found.state == state
        assert found.mend is not None
        assert found.mend.startswith(f"alter database {db.name} set")
        with db.connect(options="-c default_transaction_read_only=off") as open_for_writing:
            open_for_writing.execute(found.mend)
        assert one(db, check).state == "fine"
        given = one(db, check, options=f"-c {setting}={value}")
        assert (given.state, given.mend) == (
            state,
            f"remove {setting} from the options of the DSN, or from PGOPTIONS",
        )

    def test_server_log(self, db: Database) -> None:
        assert "MB" in one(db, "server_log").says
        found = one(db, "server_log", limits={"log": 0})
        assert found.state == "warning"
        assert found.mend is not None
        *_, log = shlex.split(found.mend)
        assert Path(log) == db.server.data / "server.log"

    def test_notification_queue(self, db: Database) -> None:
        assert one(db, "notification_queue").state == "fine"
        assert one(db, "notification_queue", limits={"notifications": 0}).state == "problem"


class TestVacuum:
    @pytest.mark.parametrize("begin", ["begin isolation level repeatable read", "begin"])
    def test_oldest_snapshot(self, db: Database, begin: str) -> None:
        assert one(db, "oldest_snapshot").state == "fine"
        forgotten = db.connect(application_name="a report")
        forgotten.execute(begin)
        forgotten.execute("select 1")
        found = one(db, "oldest_snapshot", limits={"snapshot": NOTHING})
        assert (found.state, "a report" in found.says) == ("warning", True)
        assert "idle in transaction" in found.says
        mend(db, found)
        db.wait_for(
            lambda: one(db, "oldest_snapshot", limits={"snapshot": NOTHING}).state == "fine"
        )

    def test_a_snapshot_that_may_not_be_seen(self, db: Database, stranger: str) -> None:
        db.connect().execute("select 1")
        found = one(db, "oldest_snapshot", user=stranger)
        assert found.state == "unknown"
        assert found.mend == f"grant pg_read_all_stats to {stranger}"
        mend(db, found)
        assert one(db, "oldest_snapshot", user=stranger).state == "fine"

    def test_prepared_transactions(self, db: Database) -> None:
        assert one(db, "prepared_transactions").state == "fine"
        with db.connect() as other:
            other.execute("begin")
            other.execute("select pg_current_xact_id()")
            other.execute("prepare transaction 'it''s mine'")
        found = one(db, "prepared_transactions", limits={"snapshot": NOTHING})
        assert (found.state, "it's mine" in found.says) == ("warning", True)
        mend(db, found)
        assert one(db, "prepared_transactions", limits={"snapshot": NOTHING}).state == "fine"

    def test_replication_slots(self, db: Database) -> None:
        assert one(db, "replication_slots").state == "fine"
        db.sql("select pg_create_physical_replication_slot('forgotten', true)")
        found = one(db, "replication_slots")
        assert (found.state, "forgotten" in found.says) == ("warning", True)
        mend(db, found)
        assert one(db, "replication_slots").state == "fine"

    def test_autovacuum(self, db: Database) -> None:
        assert one(db, "autovacuum").state == "fine"
        db.sql("alter table headrace.ready set (autovacuum_enabled = off)")
        found = one(db, "autovacuum")
        assert (found.state, "headrace.ready" in found.says) == ("problem", True)
        mend(db, found)
        db.sql("vacuum headrace.ready")
        db.wait_for(lambda: "it last ran" in one(db, "autovacuum").says)
        off = one(db, "autovacuum", options="-c track_counts=off")
        assert (off.state, off.says.startswith("track_counts is off")) == ("problem", True)

    def test_dead_rows_and_bloat(self, db: Database) -> None:
        few = {"dead_rows": 0, "bloat": 0}
        assert one(db, "dead_rows").state == one(db, "bloat").state == "fine"
        with db.queue() as queue:
            queue.publish_many([{"type": "t"} for _ in range(3)])
            for claimed in queue.poll(max_events=3):
                queue.complete(claimed)

        def dead() -> set[str]:
            found = look(db, "dead_rows", limits=few)
            return {one.mend.split()[1] for one in found if one.mend is not None}

        db.wait_for(lambda: {"headrace.ready", "headrace.leases"} <= dead())
        assert {one.state for one in look(db, "dead_rows", limits=few)} == {"warning"}
        assert "headrace.ready" in {
            str(one.mend).split()[2] for one in look(db, "bloat", limits=few)
        }


class TestSchema:
    def test_a_schema_that_is_missing_and_then_is_not(self, empty_db: Database) -> None:
        found = one(empty_db, "migration")
        assert (found.state, found.mend) == ("problem", "headrace migrate")
        needing = {finding.state for finding in look(empty_db, "oldest_ready")}
        assert needing == {"unknown"}
        migrate(empty_db.connect())
        assert one(empty_db, "migration").state == "fine"

    def test_a_schema_of_another_release(self, db: Database) -> None:
        assert one(db, "migration").state == "fine"
        db.sql("update headrace.release set digest = 'of an earlier release'")
        found = one(db, "migration")
        assert (found.state, found.mend) == ("warning", "headrace migrate")
        migrate(db.connect())
        assert one(db, "migration").state == "fine"
        db.sql("insert into headrace.migrations values (9999, 'from the future', now())")
        assert one(db, "migration").mend == "pip install --upgrade headrace"
        db.sql("update headrace.migrations set name = 'places' where version = 1")
        found = one(db, "migration")
        assert (found.state, "development schema" in found.says) == ("problem", True)
        assert str(found.mend).startswith("drop schema headrace cascade")

    def test_extensions(self, db: Database) -> None:
        assert one(db, "extensions").says == "none was asked for"
        migrate(db.connect(), add=["pgmq"])
        assert one(db, "extensions").says == "pgmq as asked for"
        db.sql("update headrace.optional set digest = 'of an earlier release'")
        found = one(db, "extensions")
        assert (found.state, found.mend) == ("warning", "headrace migrate")
        db.sql("delete from headrace.optional")
        db.sql(
            "insert into headrace.optional values ('pg_cron', '', '{}', now()), ('new', '', '{}', now())"
        )
        unknown, missing = look(db, "extensions")
        assert (unknown.state, missing.state) == ("warning", "problem")
        assert missing.mend == "create extension pg_cron  -- or: headrace migrate --no-pg-cron"

    def test_grants(self, db: Database, stranger: str, monkeypatch: pytest.MonkeyPatch) -> None:
        assert one(db, "grants").state == "fine"
        db.sql("grant execute on function headrace.tick to public")
        db.sql("grant usage on schema headrace to public")
        found = one(db, "grants")
        assert (found.state, found.mend) == ("warning", schema.AGAIN)
        assert "the schema" in found.says
        assert "headrace.tick" in found.says
        db.sql("revoke all on function headrace.tick from public")
        db.sql("revoke all on schema headrace from public")
        db.sql(f"grant select, insert on headrace.ready to {stranger}")
        found = one(db, "grants")
        assert (found.state, found.says.split()[0]) == ("warning", stranger)
        mend(db, found)
        assert one(db, "grants").state == "fine"
        monkeypatch.setattr(schema, "ROLES", (*schema.ROLES, "headrace_nobody"))
        assert "create role headrace_nobody nologin" in str(one(db, "grants").mend)

    def test_who_may_create_in_the_schema(self, db: Database, stranger: str) -> None:
        db.sql(f"grant create on schema headrace to {stranger}")
        found = one(db, "grants")
        assert found.state == "problem"
        db.sql(str(found.mend))
        assert one(db, "grants").state == "fine"

    def test_owners(self, db: Database, stranger: str) -> None:
        assert one(db, "owners").state == "fine"
        db.sql("create function headrace.theirs() returns int language sql as 'select 1'")
        db.sql(f"alter function headrace.theirs() owner to {stranger}")
        found = one(db, "owners")
        assert (found.state, "headrace.theirs()" in found.says) == ("problem", True)
        db.sql(str(found.mend).partition("  --")[0])
        assert one(db, "owners").state == "fine"

    def test_triggers_of_others(self, db: Database, stranger: str) -> None:
        db.sql(
            "create function public.theirs() returns trigger language plpgsql as 'begin return new; end'"
        )
        db.sql(
            "create trigger theirs before insert on headrace.ready for each row execute function public.theirs()"
        )
        assert one(db, "owners").state == "fine"
        db.sql(f"alter function public.theirs() owner to {stranger}")
        found = one(db, "owners")
        assert (found.state, "trigger theirs on headrace.ready" in found.says) == ("problem", True)
        db.sql("drop function public.theirs() cascade")

    def test_a_schema_of_a_lower_role(self, db: Database, stranger: str) -> None:
        db.sql("create schema core")
        db.sql(
            f"insert into headrace.optional values ('core', '', '{{}}', now()); alter schema core owner to {stranger}"
        )
        found = one(db, "owners")
        assert (found.state, f"belongs to {stranger}" in found.says) == ("warning", True)
        db.sql("drop schema core")

    def test_search_paths(self, db: Database) -> None:
        assert one(db, "search_paths").state == "fine"
        db.sql("alter function headrace.poll reset search_path")
        assert one(db, "search_paths").state == "problem"
        db.sql("alter function headrace.poll set search_path = pg_catalog")
        assert one(db, "search_paths").state == "problem"
        db.sql("alter function headrace.poll set search_path = pg_catalog, pg_temp")
        assert one(db, "search_paths").state == "fine"

    @pytest.mark.parametrize(("month", "state"), [(0, "problem"), (1, "warning")])
    def test_partitions(self, db: Database, month: int, state: str) -> None:
        assert one(db, "partitions").state == "fine"
        [(name,)] = db.sql(
            "select to_char(now() at time zone 'UTC' + make_interval(months => %s), '\"events_\"YYYY_MM')",
            [month],
        )
        db.sql(f"drop table headrace.{name}")
        found = one(db, "partitions")
        assert (found.state, "headrace.events" in found.says) == (state, True)
        mend(db, found)
        assert one(db, "partitions").state == "fine"

    def test_default_partition(self, db: Database) -> None:
        assert one(db, "default_partition").state == "fine"
        [(name,)] = db.sql("select to_char(now() at time zone 'UTC', '\"events_\"YYYY_MM')")
        db.sql(f"drop table headrace.{name}")
        with db.queue() as queue:
            queue.publish("t")
        found = one(db, "default_partition")
        assert (found.state, "events_default" in found.says) == ("warning", True)
        mend(db, found)
        assert one(db, "default_partition").state == "fine"

    def test_locks(self, db: Database) -> None:
        assert one(db, "locks").state == "fine"
        found = one(db, "locks", limits={"locks": 0.1})
        assert (found.state, "max_locks_per_transaction = 64" in str(found.mend)) == (
            *("warning", True),
        )

    def test_upkeep_that_fails(self, db: Database) -> None:
        db.sql("select headrace.tick(upkeep => true)")
        db.sql("update headrace.upkeep set problem = 'it did not work' where task = 'hourly'")
        found = one(db, "upkeep")
        assert (found.state, "it did not work" in found.says) == ("warning", True)
        mend(db, found)
        assert one(db, "upkeep").state == "fine"

    def test_upkeep(self, db: Database) -> None:
        assert one(db, "upkeep").state == "fine"
        db.sql("update headrace.migrations set applied_at = applied_at - interval '1 day'")
        found = one(db, "upkeep")
        assert (found.state, "nothing ticks" in found.says) == ("problem", True)
        db.sql("select headrace.tick(upkeep => true)")
        assert one(db, "upkeep").state == "fine"
        db.sql("update headrace.upkeep set next_at = next_at - interval '1 day'")
        assert one(db, "upkeep").state == "problem"

    @requirement("G13")
    @pytest.mark.parametrize("step", [{"hours": 8}, {"days": 400}], ids=str)
    def test_stored_times_that_lie_ahead(self, db: Database, step: dict[str, int]) -> None:
        pytest.importorskip("cronsim")
        assert one(db, "stored_times").state == "fine"
        db.step(**step)
        with db.queue() as queue:
            queue.schedule_task("minutely", "* * * * *")
            queue.publish("t")
            queue.poll()
        db.step(**{unit: -number for unit, number in step.items()})
        found = look(db, "stored_times")
        assert [(one.state, one.says.split()[0]) for one in found[:3]] == [
            ("problem", "leases"),
            ("problem", "looks"),
            ("problem", "readings"),
        ]
        mend(db, found[0])
        after = one(db, "stored_times")
        assert after.state == "fine"
        if "hours" in step:  # the month is the same, and is not read for it
            return
        assert "dated up to" in after.says
        behind = one(db, "stored_times", clock=lambda: time.time() + 86400)
        assert (behind.state, "is behind now" in behind.says) == ("warning", True)

    @requirement("G13")
    def test_stored_times_tell_of_a_clock_that_jumps(self, db: Database) -> None:
        db.step(days=400)
        db.sql("select headrace.tick()")
        found = one(db, "stored_times")
        assert (found.state, "the database's clock went from" in found.says) == ("warning", True)
        db.step(days=-400)
        db.sql("select headrace.tick()")
        assert one(db, "stored_times").state == "fine"
        db.advance(days=400)
        assert one(db, "stored_times").state == "fine"  # it has lasted


class TestQueues:
    @pytest.fixture
    def db(self, db: Database) -> Database:
        db.sql("select headrace.create_namespace('it''s')")
        with db.queue(namespace="it's") as queue:
            queue.publish_many([{"type": "t"} for _ in range(3)])
        return db

    def test_oldest_ready(self, db: Database) -> None:
        assert one(db, "oldest_ready").state == "fine"
        found = one(db, "oldest_ready", limits={"waiting": NOTHING})
        assert (found.state, found.says.startswith("it's/main: 3 events wait")) == ("warning", True)
        assert found.mend is not None
        assert found.mend.startswith("""headrace stats --namespace 'it'"'"'s'""")
        db.sql("select headrace.pause('it''s', 'main')")
        assert one(db, "oldest_ready", limits={"waiting": NOTHING}).state == "fine"

    def test_what_is_the_same_in_many_queues_is_said_once(self, db: Database) -> None:
        for number in range(7):
            db.sql(
                "select headrace.create_namespace(%(n)s), headrace.publish(%(n)s, '{}')",
                {"n": f"n{number}"},
            )
        found = look(db, "oldest_ready", limits={"waiting": NOTHING})
        assert len(found) == 6
        assert found[-1].says == "the same in 3 more queues"

    def test_orphans(self, db: Database) -> None:
        with db.queue(namespace="it's") as queue:
            [claimed] = queue.poll()
        assert one(db, "orphans").state == "fine"
        found = one(db, "orphans", limits={"claimed": NOTHING})
        assert found.state == "warning"
        assert str(found.mend).startswith(f"headrace reset {claimed.id} --namespace")

    def test_expired_leases(self, db: Database) -> None:
        with db.queue(namespace="it's") as queue:
            queue.poll(max_events=2)
            queue.poll(each=True)
        assert one(db, "expired_leases").state == "fine"
        db.sql("update headrace.leases set until = until - interval '1 hour'")
        found = one(db, "expired_leases")
        assert (found.state, "2 leases" in found.says) == ("problem", True)
        mend(db, found)
        assert one(db, "expired_leases").state == "fine"

    def test_a_check_that_would_have_to_wait_is_given_up(self, db: Database) -> None:
        with db.connect() as other, other.transaction():
            other.execute("lock table headrace.leases in access exclusive mode")
            found = one(db, "expired_leases")
        assert (found.state, "took too long" in found.says) == ("unknown", True)


class TestConnection:
    def test_pooler(self, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        assert one(db, "pooler").state == "fine"
        monkeypatch.setattr(connection_checks, "PROBE", 0.2)  # it does not arrive later either
        with pgbouncer(db) as dsn, psycopg.connect(dsn, autocommit=True) as connection:
            connection.prepare_threshold = None
            found = list(examine(connection, dsn))
        assert [one.state for one in found if one.check == "pooler"] == ["warning"]
        assert "unknown" not in {one.state for one in found}

    @pytest.mark.parametrize(("shift", "says"), [(60, "behind"), (-60, "ahead of")])
    def test_clock(self, db: Database, shift: int, says: str) -> None:
        assert one(db, "clock").state == "fine"
        found = one(db, "clock", clock=lambda: time.time() + shift)
        assert (found.state, f"{says} this machine's" in found.says) == ("warning", True)


class TestNotForWriting:
    def test_every_check_is_made_where_nothing_may_be_written(self, db: Database) -> None:
        with db.connect(options="-c default_transaction_read_only=on") as connection:
            found = list(examine(connection, db.dsn))
        assert [one.check for one in found] == [check.name for check in CHECKS]
        assert {one.check for one in found if one.state == "unknown"} <= {"pooler"}

    @pytest.mark.long
    def test_every_check_is_made_on_a_standby(self) -> None:
        """A server that waits for a primary that never comes is one."""
        with short_folder() as folder:
            with EmbeddedPostgres(folder / "data") as primary:
                with psycopg.connect(primary.dsn, autocommit=True) as connection:
                    migrate(connection)
                inside = next(primary.data.rglob("PG_VERSION")).parent
            signal = inside / "standby.signal"
            signal.touch()
            owner = inside.stat()
            os.chown(signal, owner.st_uid, owner.st_gid)
            with (
                EmbeddedPostgres(folder / "data") as standby,
                psycopg.connect(standby.dsn, autocommit=True) as connection,
            ):
                found = list(examine(connection, standby.dsn))
        assert [one.check for one in found if one.state == "problem"] == ["writable"]
        assert [one.check for one in found if one.state == "unknown"] == ["pooler"]

    def test_a_connection_that_is_lost_is_no_finding(self, db: Database) -> None:
        with db.connect() as connection:
            found = examine(connection, db.dsn)
            next(found)
            db.sql("select pg_terminate_backend(%s, 5000)", [connection.info.backend_pid])
            with pytest.raises(psycopg.OperationalError):
                list(found)


class TestFewRights:
    def test_somebody_who_may_nothing_is_told_what_could_not_be_seen(
        self, db: Database, stranger: str
    ) -> None:
        with db.connect(user=stranger) as connection:
            found = list(examine(connection, db.dsn))
        assert {one.check for one in found} == {check.name for check in CHECKS}
        unseen = {one.check for one in found if one.state == "unknown"}
        assert unseen >= {"migration", "oldest_ready", "orphans", "expired_leases", "upkeep"}
        assert all(
            "has no right to check" in one.says or one.mend for one in found if one.check in unseen
        )
        assert {"fsync", "partitions", "autovacuum", "clock"}.isdisjoint(unseen)

    def test_a_reader_sees_the_queues(self, db: Database, stranger: str) -> None:
        db.sql(f"grant headrace_reader to {stranger}")
        with db.connect(user=stranger) as connection:
            found = list(examine(connection, db.dsn))
        unseen = {one.check for one in found if one.state == "unknown"}
        assert unseen.isdisjoint({"migration", "oldest_ready", "orphans", "grants"})


@pytest.fixture
def stranger(db: Database) -> Any:
    """A role that may nothing."""
    name = f"stranger_{db.name}"
    db.sql(f"create role {name} login")
    yield name
    db.sql(f"drop owned by {name}; drop role {name}")
