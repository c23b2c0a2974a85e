"""Where pg_partman looks after partitions: it makes the months and detaches them, and no live event is lost over it.

pg_partman is told what time it is, so that the clock of the tests is its clock, too.
"""

from collections.abc import Iterator

import psycopg
import pytest

from headrace import NotInstallable
from headrace.install.migrate import migrate, script
from headrace.testing.database import LET_RUN
from tests.database import Database, Server
from tests.engine.races_helpers import Session
from tests.requirements import requirement

PARENTS = ("errors", "events", "outcomes")
CONFIGURED = """
select parent_table, premake, retention::interval = interval '6 months', retention_keep_table, automatic_maintenance
from partman.part_config order by 1
"""


EXTENSION = "create schema partman; create extension pg_partman schema partman"


@pytest.fixture
def without(house: Server) -> Iterator[Database]:
    """A database of which pg_partman knows nothing yet."""
    database = Database(house, house.create_database(template=Server.TEMPLATE))
    yield database
    database.close()
    house.drop_database(database.name)


@pytest.fixture
def db(without: Database) -> Database:
    without.sql(EXTENSION)
    migrate(without.connect(), add=["partman"])
    return without


@pytest.fixture
def worker(db: Database) -> Session:
    return Session(db)


def move_clock_to(db: Database, moment: str) -> None:
    db.sql("update headrace_test.clock set shift = %s::timestamptz - clock_timestamp()", [moment])
    db.sql(LET_RUN)


def months(db: Database, parent: str = "events") -> list[str]:
    rows = db.sql(
        "select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid"
        " where i.inhparent = %s::regclass and c.relname !~ '_default$' order by 1",
        [f"headrace.{parent}"],
    )
    return [name.removeprefix(f"{parent}_") for (name,) in rows]


def this_month_and(db: Database, more: int) -> list[str]:
    rows = db.sql(
        "select to_char((headrace._now() at time zone 'UTC') + make_interval(months => n), 'YYYY_MM')"
        " from generate_series(0, %s) n",
        [more],
    )
    return [f"p{month}" for (month,) in rows]


@requirement("PG-1", "PG-5", "PG-21")
def test_the_months_are_handed_over(db: Database, worker: Session) -> None:
    assert db.sql(CONFIGURED) == [
        (f"headrace.{parent}", 3, True, True, "off") for parent in PARENTS
    ]
    for parent in PARENTS:
        assert months(db, parent) == this_month_and(db, 3)
        assert db.sql("select to_regclass(%s) is null", [f"headrace.{parent}_default"]) == [
            (False,)
        ]
    [event] = worker.publish()
    home = db.sql("select tableoid::regclass::text from headrace.events")
    assert home == [(f"headrace.events_{this_month_and(db, 0)[0]}",)]
    assert [claimed.id for claimed in worker.poll()] == [event]


@pytest.mark.rest
def test_what_was_stored_before_stays(without: Database) -> None:
    worker = Session(without)
    done, live = worker.publish(2)
    worker.finish(worker.poll(1))
    move_clock_to(without, "2031-05-15T12:00:00Z")
    [caught] = worker.publish()  # into the net: nobody has made this month
    without.sql(EXTENSION)
    assert migrate(without.connect(), add=["partman"]) is True
    assert [event for (event,) in without.sql("select id from headrace.events order by 1")] == [
        done,
        live,
        caught,
    ]
    assert without.sql("select count(*) from headrace.events_default") == [(0,)]
    assert "p2031_05" in months(without)
    assert sorted(claimed.id for claimed in worker.poll(9)) == [live, caught]


@pytest.mark.rest
def test_a_month_of_its_making_is_like_one_of_ours(db: Database, worker: Session) -> None:
    for parent in PARENTS:
        shapes = db.sql(
            """
            select distinct array_agg(i.indisprimary || regexp_replace(pg_get_indexdef(i.indexrelid), '^.* USING ', ' ')
                                      order by regexp_replace(pg_get_indexdef(i.indexrelid), '^.* USING ', ' '))
            from pg_partition_tree(%s) t join pg_index i on i.indrelid = t.relid and i.indisvalid and t.isleaf
            group by t.relid
            """,
            [f"headrace.{parent}"],
        )
        assert len(shapes) == 1


@requirement("PG-5", "G1", "G17")
def test_over_the_ends_of_months_they_come_and_go_and_no_live_event_is_lost(
    db: Database, worker: Session
) -> None:
    move_clock_to(db, "2031-01-31T23:59:00Z")
    assert worker.tick(upkeep=True).kept_up
    expected = {}
    for month in range(1, 15):
        [live] = worker.publish(type="live", payload={"month": month})
        expected[live] = month
        worker.publish(type="done")
        assert worker.finish(worker.poll(9, types=["done"])) == ["counted"]
        db.advance(minutes=2)  # over the end of a month, every time
        db.sql(LET_RUN)
        assert worker.tick(upkeep=True).kept_up
        assert db.sql("select count(*) from headrace.events_default") == [(0,)]
        for parent in PARENTS:
            made = [name for name in months(db, parent) if name > "p2031"]
            assert made[-4:] == this_month_and(db, 3)
            assert len(made) == min(month, 6) + 4
        db.sql("""
            update headrace_test.clock set shift = shift
                + (date_trunc('month', headrace._now(), 'UTC') + interval '1 month' - interval '1 minute' - headrace._now())
        """)
    assert db.sql("select to_regclass('headrace.events_p2031_01')") == [(None,)]
    assert db.sql("select count(*) from headrace.events where type = 'live'") == [(6,)]
    claims = worker.poll(99)
    assert {claimed.id: claimed.payload["month"] for claimed in claims} == expected
    assert worker.finish(claims) == ["counted"] * 14


def age(db: Database, worker: Session) -> int:
    """An event of more than half a year ago that still lives."""
    move_clock_to(db, "2031-01-15T12:00:00Z")
    worker.tick(upkeep=True)
    [live] = worker.publish(payload={"n": 1})
    move_clock_to(db, "2031-08-15T12:00:00Z")
    return live


@pytest.mark.rest
def test_a_month_may_be_kept_and_what_lives_in_it_lives_on(db: Database, worker: Session) -> None:
    db.sql("select headrace.configure('retention_action', 'detach')")
    live = age(db, worker)
    assert worker.tick(upkeep=True).kept_up
    assert db.sql("select id from headrace.events_p2031_01") == [(live,)]
    assert "p2031_01" not in months(db)
    assert [claimed.id for claimed in worker.poll()] == [live]
    assert worker.tick(upkeep=True).kept_up
    db.sql("select headrace.configure('retention_action', 'drop')")
    assert worker.tick(upkeep=True).kept_up  # what was kept goes as well
    assert db.sql("select to_regclass('headrace.events_p2031_01')") == [(None,)]


def test_what_somebody_had_detached_is_carried_over_too(db: Database, worker: Session) -> None:
    live = age(db, worker)
    db.sql(
        "select partman.drop_partition_time('headrace.events', p_reference_timestamp => headrace._now())"
    )
    assert "p2031_01" not in months(db)
    assert worker.tick(upkeep=True).kept_up
    assert db.sql("select to_regclass('headrace.events_p2031_01')") == [(None,)]
    assert [(c.id, c.payload) for c in worker.poll()] == [(live, {"n": 1})]


@pytest.mark.rest
def test_how_long_months_are_kept_is_said_in_one_place(db: Database, worker: Session) -> None:
    db.sql("select headrace.configure('retention', '9 months')")
    live = age(db, worker)
    assert worker.tick(upkeep=True).kept_up
    assert "p2031_01" in months(db)
    kept = "select distinct retention::interval = interval '9 months' from partman.part_config"
    assert db.sql(kept) == [(True,)]
    assert [claimed.id for claimed in worker.poll()] == [live]


@pytest.mark.rest
def test_how_many_are_made_ahead_is_said_there(db: Database, worker: Session) -> None:
    db.sql("update partman.part_config set premake = 5")
    assert worker.tick(upkeep=True).kept_up
    assert months(db) == this_month_and(db, 5)


@pytest.mark.rest
def test_what_the_net_caught_is_moved_to_its_months(db: Database, worker: Session) -> None:
    move_clock_to(db, "2031-05-15T12:00:00Z")
    [caught] = worker.publish()
    assert db.sql("select id from headrace.events_default") == [(caught,)]
    assert worker.tick(upkeep=True).kept_up
    assert db.sql("select id from headrace.events_p2031_05") == [(caught,)]


@pytest.mark.rest
def test_a_reader_who_is_in_the_way_is_waited_for_without_a_word(
    db: Database, worker: Session
) -> None:
    age(db, worker)
    notices: list[str] = []
    worker.connection.add_notice_handler(lambda said: notices.append(said.message_primary or ""))
    with db.connect(autocommit=False) as reader:
        reader.execute("select count(*) from headrace.events")
        assert not worker.tick(upkeep=True).kept_up
        assert "p2031_01" in months(db)
    assert worker.tick(upkeep=True).kept_up
    assert "p2031_01" not in months(db)
    assert notices == []


def test_taken_back_the_months_are_ours_again(db: Database, worker: Session) -> None:
    live = age(db, worker)
    assert migrate(db.connect(), remove=["partman"]) is True
    assert all(not name.startswith("p") for name in months(db))
    assert db.sql("select count(*) from partman.part_config") == [(0,)]
    assert db.sql("select to_regclass('partman.template_headrace_events')") == [(None,)]
    assert worker.tick(upkeep=True).kept_up
    assert months(db)[-4:] == ["2031_08", "2031_09", "2031_10", "2031_11"]
    assert [claimed.id for claimed in worker.poll()] == [live]
    assert migrate(db.connect(), add=["partman"]) is True
    assert months(db)[-4:] == this_month_and(db, 3)


@pytest.mark.rest
def test_a_script_hands_them_over_too(without: Database) -> None:
    without.sql(EXTENSION)
    connection = without.connect()
    for _ in range(2):
        connection.execute(script(add=["partman"]))
        assert months(without) == this_month_and(without, 3)
    connection.execute(script(remove=["partman"]))
    assert all(not name.startswith("p") for name in months(without))


def test_without_the_extension_it_is_said_how_to_get_it(without: Database) -> None:
    with pytest.raises(NotInstallable, match="create extension pg_partman"):
        migrate(without.connect(), add=["partman"])
    assert without.sql("select * from headrace.optional") == []


@requirement("G22")
def test_functions_that_a_lower_role_may_replace_are_not_called(without: Database) -> None:
    without.sql(EXTENSION)
    without.sql("create role lower_role")
    try:
        without.sql("alter function partman.check_name_length owner to lower_role")
        with pytest.raises(
            NotInstallable, match="belong to another role, which is not a superuser"
        ):
            migrate(without.connect(), add=["partman"])
        assert without.sql("select * from headrace.optional") == []
    finally:
        without.sql(
            "alter function partman.check_name_length owner to current_user; drop role lower_role"
        )


@pytest.mark.rest
def test_when_the_extension_is_gone_it_is_said_how_to_do_without(
    db: Database, worker: Session
) -> None:
    db.sql("drop extension pg_partman cascade; drop schema partman cascade")
    with pytest.raises(psycopg.Error, match="headrace migrate --no-partman"):
        db.sql("select headrace._make_partitions('events')")
    assert migrate(db.connect(), remove=["partman"]) is True
    assert worker.tick(upkeep=True).kept_up
    assert all(not name.startswith("p") for name in months(db))
