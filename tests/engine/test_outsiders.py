"""Outsiders: whoever may connect can take any advisory lock. One who has all of ours is in nobody's way for long."""

import re
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

import headrace
from headrace.doctor import examine
from headrace.install.migrate import migrate
from tests.database import Database
from tests.engine.functions_helpers import Engine
from tests.requirements import requirement

SQL = Path(headrace.__file__).parent / "sql"
NUMBERS = range(1212433730, 1212433750)  # with which our advisory locks begin, or ever did
KEYS, WORKERS = ("a", "b"), ("w",)
SOON = "5s"  # until what must not wait is taken to wait; nothing here takes as long


class Outsider:
    """A session of a role that may do nothing but connect."""

    def __init__(self, db: Database) -> None:
        with db.connect() as admin:
            admin.execute("select pg_advisory_xact_lock(1)")
            if not admin.execute("select from pg_roles where rolname = 'an_outsider'").fetchall():
                admin.execute("create role an_outsider login")
        self.connection = db.connect(user="an_outsider", application_name="intruder")
        self.pid = self.connection.info.backend_pid

    def take_all(self) -> None:
        """Every lock that we have, or ever had, with whatever number goes with it."""
        execute = self.connection.execute
        for number in NUMBERS:
            execute("select pg_advisory_lock(%s)", [number])
            execute("select pg_advisory_lock(%s, n) from generate_series(0, 50) n", [number])
            for key in KEYS:
                execute(
                    "select pg_advisory_lock(%s, hashtext(q || ' ' || %s)) from generate_series(0, 9) q",
                    [number, key],
                )
            for worker in WORKERS:
                execute("select pg_advisory_lock(%s, hashtext(%s))", [number, worker])

    def take_what_others_have(self) -> None:
        """Shared, which nobody can refuse."""
        self.connection.execute(
            "select pg_advisory_lock_shared(classid::bigint << 32 | objid::bigint) from pg_locks"
            " where locktype = 'advisory' and objsubid = 1 and pid <> pg_backend_pid()"
        )

    def leave(self) -> None:
        self.connection.execute("select pg_advisory_unlock_all()")


@pytest.fixture
def outsider(db: Database) -> Outsider:
    outsider = Outsider(db)
    outsider.take_all()
    return outsider


@pytest.fixture
def engine(db: Database, outsider: Outsider) -> Engine:
    return Engine(db, options=f"-c statement_timeout={SOON}")


class TestWhatGoesOn:
    """While an outsider has all the locks."""

    def test_publishing_and_claiming(self, engine: Engine) -> None:
        [id] = engine.publish({"type": "a"})
        [(one, *_)] = engine.call("publish_one", namespace="default", type="a", payload="{}")
        claims = engine.poll(10)
        assert [claim.id for claim in claims] == [id, one]
        engine.finish(claims)

    @requirement("G19")
    def test_who_would_sleep_is_told_to_poll_and_sleeps_when_the_way_is_free(
        self, engine: Engine, outsider: Outsider, db: Database
    ) -> None:
        assert engine.call("fall_asleep", namespace="default") == [(None,)]
        outsider.leave()
        [(channel,)] = engine.call("fall_asleep", namespace="default")
        Engine(db).publish({})
        engine.connection.execute("select 1")
        assert [n.channel for n in engine.connection.notifies(timeout=0)] == [channel]

    @requirement("G11")
    def test_ordering_keys_have_their_turns(self, engine: Engine) -> None:
        ids = engine.publish(*({"key": key} for key in KEYS * 2))
        first = engine.poll(10)
        assert [claim.id for claim in first] == ids[:2]
        assert engine.poll(10) == []
        engine.finish(first)
        assert [claim.id for claim in engine.poll(10)] == ids[2:]

    def test_suspects_are_handed_out(self, engine: Engine, db: Database) -> None:
        ids = engine.publish({}, {})
        engine.poll(10, worker="w")
        db.advance(minutes=2)
        engine.tick()
        [suspect] = engine.poll(10, worker="w")
        assert suspect.id in ids
        assert engine.poll(10, worker="w") == []

    def test_the_upkeep_is_done(self, engine: Engine, db: Database) -> None:
        engine.call(
            "change_namespace", namespace="default", settings='{"unhandled": "dead_letter"}'
        )
        engine.call(
            "change_queue", namespace="default", queue="main", settings='{"high_watermark": 1000}'
        )
        engine.publish({})
        engine.tick()
        assert db.sql("select count(*) from headrace.counts") == [(0,)]
        assert db.sql("select count(*) > 0 from headrace.depths") == [(True,)]
        engine.call("create_queue", namespace="default", queue="late", since="-infinity")
        db.advance(hours=2)
        assert engine.tick(upkeep=True).kept_up
        engine.tick()
        tasks = {
            task
            for (task,) in db.sql(
                "select task from headrace.upkeep where next_at > headrace._now()"
            )
        }
        assert {"hourly", "states"} <= tasks
        assert db.sql("select count(*) > 0 from headrace.unhandled") == [(True,)]
        assert db.sql("select count(*) > 0 from headrace.event_queue_state") == [(True,)]
        assert db.sql("select max(at) > headrace._now() - interval '1 minute' from headrace.clock_readings") == [(True,)]  # fmt: skip
        assert db.sql("select max(at) > headrace._now() - interval '1 minute' from headrace.samplings") == [(True,)]  # fmt: skip
        assert db.sql("select count(*) from headrace.horizons") == [(1,)]
        assert db.sql("select count(*) from headrace.chores") == [(0,)]

    def test_plans_are_made_anew_after_the_clock_was_wrong(
        self, engine: Engine, db: Database
    ) -> None:
        db.step(days=2)
        engine.tick()
        engine.publish({})
        engine.poll()
        db.step(days=-2)
        engine.tick()
        assert db.sql("select until < headrace._now() + interval '2 minutes' from headrace.leases") == [(True,)]  # fmt: skip

    def test_schedules_fire(self, engine: Engine, db: Database) -> None:
        queue = db.queue()
        queue.schedule_task("every minute", "* * * * *")
        queue.plan_schedules()
        db.advance(minutes=2)
        assert engine.tick().fired > 0

    def test_states_are_saved_and_events_are_erased(self, engine: Engine) -> None:
        [id] = engine.publish({"payload": {"name": "secret"}})
        engine.call("save_state", namespace="default")
        [saved] = engine.call("checkpoint", namespace="default")
        assert saved.queue_id == "default/main"
        engine.finish(engine.poll())
        assert engine.call("erase", namespace="default", event_id=id) == [(True,)]

    def test_a_database_is_migrated(self, empty_db: Database) -> None:
        Outsider(empty_db).take_all()
        connection = empty_db.connect(options=f"-c statement_timeout={SOON}")
        assert migrate(connection) is True
        empty_db.sql("update headrace.release set digest = 'another'")
        assert migrate(connection) is True

    @requirement("G4")
    def test_a_dead_node_s_claims_come_back_when_their_leases_end(
        self, engine: Engine, outsider: Outsider, db: Database
    ) -> None:
        instance = uuid4()
        dead = Engine(db)
        assert dead.call("stay", instance=instance) == [(True,)]
        dead.call("register_node", namespace="default", node_id="n", instance=instance)
        [id] = engine.publish({})
        dead.poll(instance=instance, lease="1 minute")
        outsider.take_what_others_have()
        dead.connection.close()
        new = {"namespace": "default", "node_id": "n", "instance": uuid4()}
        assert engine.call("recover", **new) == [(0, "alive")]
        db.advance(seconds=61)
        engine.tick()
        assert engine.claim().id == id

    def test_a_node_that_cannot_be_known_by_its_lock_works_all_the_same(
        self, engine: Engine, outsider: Outsider
    ) -> None:
        instance = uuid4()
        outsider.connection.execute(
            "select pg_advisory_lock(hashtextextended(%s::text, 1212433745))", [instance]
        )
        assert engine.call("stay", instance=instance) == [(False,)]
        engine.call("register_node", namespace="default", node_id="n", instance=instance)
        engine.publish({})
        assert len(engine.poll(instance=instance)) == 1


class TestWhoIsNamed:
    def test_who_has_the_lock_of_sleepers(
        self, engine: Engine, outsider: Outsider, db: Database
    ) -> None:
        [found] = [f for f in db.queue().attention() if f.code == "lock_in_the_way"]
        assert dict(found.about) == {
            "purpose": "sleepers", "pid": outsider.pid, "role": "an_outsider", "application": "intruder",
        }  # fmt: skip
        assert f"Process {outsider.pid} (role an_outsider, application intruder)" in found.sentence
        [told] = self.told(db)
        assert told.state == "warning"
        assert f"Process {outsider.pid} (role an_outsider, application intruder)" in told.says
        assert told.mend == f"select pg_terminate_backend({outsider.pid})"
        outsider.leave()
        assert [f for f in db.queue().attention() if f.code == "lock_in_the_way"] == []
        assert [one.state for one in self.told(db)] == ["fine"]

    def test_who_has_the_lock_of_a_node(self, db: Database) -> None:
        outsider, node, instance = Outsider(db), Engine(db), uuid4()
        node.call("stay", instance=instance)
        node.call("register_node", namespace="default", node_id="n", instance=instance)
        assert node.call("locks_in_the_way") == []
        outsider.take_what_others_have()
        assert node.call("locks_in_the_way") == [
            ("instances", outsider.pid, "an_outsider", "intruder")
        ]

    def test_who_has_ticked_and_does_not_end(self, db: Database) -> None:
        slow = db.connect(autocommit=False, application_name="slow")
        slow.execute("select headrace.tick()")
        engine = Engine(db)
        assert engine.call("locks_in_the_way") == []
        named = ("upkeep", slow.info.backend_pid, slow.info.user, "slow")
        assert engine.call("locks_in_the_way", late="0 seconds") == [named]
        slow.rollback()
        assert engine.call("locks_in_the_way", late="0 seconds") == []

    def test_nobody_who_sleeps_or_lives_as_he_should(self, db: Database) -> None:
        engine = Engine(db)
        engine.call("fall_asleep", namespace="default")
        engine.call("stay", instance=uuid4())
        assert Engine(db).call("locks_in_the_way") == []

    def told(self, db: Database) -> list[headrace.doctor.Diagnosis]:
        found = examine(db.connect(), db.dsn)
        return [one for one in found if one.check == "locks_in_the_way"]


class TestLocks:
    """What keeps others out now: rows, which nobody locks who may not touch the table."""

    @pytest.fixture
    def two(self, db: Database) -> tuple[psycopg.Connection, psycopg.Connection]:
        return db.connect(autocommit=False), db.connect(autocommit=False)

    @pytest.mark.parametrize("name", ["counts", "suspect 1 w"])
    def test_one_has_it_until_his_transaction_ends(
        self, two: tuple[psycopg.Connection, psycopg.Connection], name: str
    ) -> None:
        def gets(connection: psycopg.Connection) -> bool:
            [(got,)] = connection.execute("select headrace._try_lock(%s)", [name]).fetchall()
            return got

        one, other = two
        assert (gets(one), gets(one), gets(other), gets(other)) == (True, True, False, False)
        one.rollback()
        assert gets(other)
        assert not gets(one)
        other.commit()
        assert gets(one)

    def test_names_of_the_moment_are_removed_by_the_upkeep(self, db: Database) -> None:
        db.sql(
            "select headrace._try_lock(n) from unnest('{erase 1,suspect 1 w,state 1}'::text[]) n"
        )
        with db.connect(autocommit=False) as holder:
            holder.execute("select headrace._try_lock('suspect 1 w')")
            db.sql("select headrace._forget()")
        names = {name for (name,) in db.sql("select name from headrace.locks")}
        assert {"suspect 1 w", "upkeep"} <= names
        assert not {"erase 1", "state 1"} & names

    def test_a_lock_whose_row_was_lost_is_made_again(self, db: Database) -> None:
        db.sql("delete from headrace.locks")
        assert db.sql("select (headrace.tick(upkeep => true)).kept_up") == [(True,)]

    @pytest.mark.new_database
    def test_nothing_of_it_grows(self, db: Database) -> None:
        where = "select ctid from headrace.locks where name = 'counts'"
        before = db.sql(where)
        for _ in range(3):
            db.sql("select headrace.tick()")
        assert db.sql(where) == before


def sources() -> Iterator[tuple[str, str]]:
    for path in SQL.rglob("*.sql"):
        yield path.name, re.sub("--.*", "", path.read_text(encoding="utf-8"))


def test_nothing_waits_for_an_advisory_lock() -> None:
    waiting = re.compile(r"pg_advisory(_xact)?_lock(_shared)?\s*\(")
    assert [name for name, text in sources() if waiting.search(text)] == []


def test_the_numbers_of_advisory_locks_are_in_one_place() -> None:
    assert {name for name, text in sources() if "12124337" in text} == {"_advisory_lock.sql"}
