"""A sequence that is behind its tables: seen, refused, and mended; after a partial restore and after logical replication."""

import logging
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from headrace.doctor import CHECKS, examine
from headrace.embedded import EmbeddedPostgres, find_binaries
from headrace.errors import SequenceBehind
from tests.cli.running import CommandLine
from tests.database import STRIDE, Database, Server
from tests.engine.functions_helpers import Engine, refused
from tests.engine.test_backup import program
from tests.folders import short_folder
from tests.requirements import requirement

TWICE = "select id from headrace.events group by id having count(*) > 1"


def findings(db: Database) -> list[tuple[str, str | None]]:
    checks = [check for check in CHECKS if check.name == "numbers"]
    found = examine(db.connect(), db.dsn, checks=checks)
    return [(one.state, one.mend) for one in found]


class TestMending:
    @pytest.fixture
    def engine(self, db: Database) -> Engine:
        """Some life, and then the sequence is where it was at the beginning."""
        engine = Engine(db)
        engine.publish(*[{"type": "a"}] * 10)
        engine.finish(engine.poll(5))
        return engine

    def test_a_sound_sequence_is_left_alone(self, db: Database, engine: Engine) -> None:
        [(drawn,)] = db.sql("select headrace._last_drawn_id()")
        assert db.sql("select headrace.ids_behind(), headrace.repair_ids()") == [(None, None)]
        assert findings(db) == [("fine", None)]
        assert engine.publish({}) == [drawn + STRIDE]

    @pytest.mark.parametrize("place", ["events", "leases", "outcomes", "horizons"])
    def test_every_table_that_is_numbered_counts(
        self, db: Database, engine: Engine, place: str
    ) -> None:
        if place == "leases":
            engine.claim()
        elif place == "events":
            engine.publish({})
        elif place == "horizons":
            db.sql("select nextval('headrace.ids')")
            db.sql("select headrace.save_state('default')")
        [(drawn,)] = db.sql("select headrace._last_drawn_id()")
        db.sql("select setval('headrace.ids', %s)", [drawn - STRIDE])
        assert db.sql("select headrace.ids_behind()") == [(drawn,)]
        [(state, mend)] = findings(db)
        assert state == "problem"
        assert mend is not None
        assert mend.startswith("headrace repair")
        assert db.sql("select headrace.repair_ids()") == [(drawn,)]
        assert db.sql("select headrace.ids_behind()") == [(None,)]
        assert engine.publish({}) == [drawn + STRIDE]

    @requirement("G1")
    @pytest.mark.parametrize(
        "publish",
        [
            "select headrace.publish_one('default', 'a', '{}')",
            "select headrace.publish_many('default', 'a', '[1, 2]')",
            "select headrace.publish('default', '[{\"tags\": [\"t\"]}, {}]')",
            "select headrace.publish('default', '{\"idempotency_key\": \"k\"}')",
            'select headrace.publish(\'default\', \'{"type": "a", "payloads": [1], "priority": 1}\')',
        ],
    )
    @pytest.mark.parametrize("is_old", [False, True])
    def test_no_event_is_stored_under_a_number_that_is_taken(
        self, db: Database, engine: Engine, publish: str, is_old: bool
    ) -> None:
        """The key of the month sees what is of this month, the floor what is older."""
        if is_old:
            db.sql("update headrace.events set created_at = created_at - interval '2 months'")
            db.sql("select headrace.tick(upkeep => true)")
        db.sql("delete from headrace.ready")
        db.sql("select setval('headrace.ids', headrace._id_at(1), false)")
        with refused("QU042" if is_old else "23505"):
            db.sql(publish)
        with pytest.raises(SequenceBehind, match=r"headrace repair|taken"):
            db.queue().publish("a", {})
        db.sql("select headrace.repair_ids()")
        db.sql(publish)
        assert db.sql(TWICE) == []

    def test_a_claim_that_has_the_number_of_an_earlier_one_is_cancelled_all_the_same(
        self, db: Database
    ) -> None:
        """And its worker is told what became of it this time, not the last time."""
        engine = Engine(db)
        engine.publish({})
        earlier = engine.claim()
        engine.call("reset", namespace="default", event_id=earlier.id)
        db.sql("select setval('headrace.ids', %s, false)", [earlier.lease])
        again = engine.claim()
        assert (again.id, again.lease) == (earlier.id, earlier.lease)
        engine.call("cancel", namespace="default", event_id=again.id)
        [told] = engine.call("extend", namespace="default", queue="main", leases=[again.lease])
        assert told.taken == {str(again.id): "CANCELLED"}

    def test_who_connects_is_told_and_may_read(
        self, db: Database, engine: Engine, caplog: pytest.LogCaptureFixture
    ) -> None:
        db.sql("select setval('headrace.ids', headrace._id_at(1))")
        with caplog.at_level(logging.WARNING, "headrace"):
            assert len(db.queue().events().events) == 10
        assert "headrace repair" in caplog.text

    def test_who_connects_waits_for_no_lock(self, db: Database, engine: Engine) -> None:
        locker = db.connect(autocommit=False)
        locker.execute("lock table headrace.events in access exclusive mode")
        with refused("55P03"):
            db.sql("select headrace.ids_behind()")
        db.queue()
        locker.rollback()

    def test_nobody_draws_while_it_is_mended(self, db: Database, engine: Engine) -> None:
        db.sql("select setval('headrace.ids', headrace._id_at(1))")
        mending = db.connect(autocommit=False)
        mending.execute("select headrace.repair_ids()")
        publisher = db.connect()
        publisher.execute("set lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            publisher.execute("select headrace.publish('default', '{}')")
        mending.commit()
        publisher.execute("select headrace.publish('default', '{}')")
        assert db.sql(TWICE) == []


@requirement("G1", "G17", "G24")
def test_a_part_of_a_dump_is_restored_and_mended(
    db: Database, empty_db: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the page on replication says: the tables without the sequence, then `headrace repair`."""
    cli = CommandLine(empty_db, capsys)
    ids = Engine(db).publish(*[{"type": "a"}] * 50)
    dump = program(db.server, "pg_dump", "--format=custom", "--dbname", db.dsn)
    listed = program(db.server, "pg_restore", "--list", input=dump).decode().splitlines()
    with short_folder() as folder:
        toc, archive = folder / "toc", folder / "dump"
        toc.write_text(
            "\n".join(line for line in listed if "SEQUENCE SET headrace ids" not in line)
        )
        archive.write_bytes(dump)
        program(
            db.server, "pg_restore", "--use-list", str(toc), "--dbname", empty_db.dsn, str(archive)
        )
    with refused("23505"):
        empty_db.sql("select headrace.publish_one('default', 'a', '{}')")
    assert cli("repair").out.strip().endswith(f"ids continue after {max(ids)}.")
    assert cli("repair").out.count("nothing to repair") == 1
    engine = Engine(empty_db)
    [new] = engine.publish({"type": "a"})
    assert new > max(ids)
    assert sorted(claim.id for claim in engine.poll(100)) == [*ids, new]


@pytest.fixture
def subscriber(db: Database, publisher: Database) -> Iterator[Database]:
    yield db
    db.sql("alter subscription headrace disable")
    db.sql("alter subscription headrace set (slot_name = none)")
    db.sql("drop subscription headrace")


@pytest.fixture
def publisher() -> Iterator[Database]:
    settings = {"fsync": "off", "full_page_writes": "off", "wal_level": "logical"}
    with short_folder() as folder, EmbeddedPostgres(folder / "data", settings=settings) as postgres:
        server = Server(postgres, find_binaries())
        server.prepare_template()
        database = Database(server, server.create_database(template=Server.TEMPLATE))
        yield database
        database.close()
        server.close()


@requirement("G1", "G17", "G24")
def test_a_copy_by_logical_replication_takes_over(
    publisher: Database, subscriber: Database
) -> None:
    """As the page on replication says."""
    old = Engine(publisher)
    before = old.publish(*[{"type": "a"}] * 30)
    old.finish(old.poll(10))
    publisher.sql("create publication headrace for tables in schema headrace")
    tables = subscriber.sql(
        "select c.oid::regclass::text from pg_class c where c.relnamespace = 'headrace'::regnamespace"
        " and c.relkind = 'r'"
    )
    subscriber.sql(f"truncate {', '.join(name for (name,) in tables)} cascade")
    way = " ".join(f"{name}={value}" for name, value in conninfo_to_dict(publisher.dsn).items())
    subscriber.sql(f"create subscription headrace connection '{way}' publication headrace")
    after = old.publish(*[{"type": "a"}] * 20)
    old.finish(old.poll(10))
    [(end,)] = publisher.sql("select pg_current_wal_lsn()::text")
    subscriber.wait_for(lambda: _has_come(subscriber, end))
    assert findings(subscriber)[0][0] == "problem"
    with refused("23505"):
        subscriber.sql("select headrace.publish_one('default', 'a', '{}')")
    subscriber.sql("select headrace.repair_ids()")
    new = Engine(subscriber)
    added = new.publish(*[{"type": "a"}] * 5)
    assert subscriber.sql(TWICE) == []
    assert sorted(claim.id for claim in new.poll(100)) == [*before, *after, *added][20:]


def _has_come(db: Database, end: str) -> bool:
    query = """
        select not exists (select from pg_subscription_rel where srsubstate <> 'r')
               and exists (select from pg_stat_subscription where latest_end_lsn >= %s::pg_lsn)
    """
    return bool(db.sql(query, [end])[0][0])
