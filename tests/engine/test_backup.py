"""A backup is a dump: restored elsewhere, everything is where it was, and work goes on."""

import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.install.migrate import migrate
from tests.database import PATIENCE, Database, Server
from tests.engine.catalogue import whole_catalogue
from tests.engine.races_helpers import Background, Session
from tests.requirements import requirement


def program(server: Server, name: str, *arguments: str, input: bytes | None = None) -> bytes:
    ran = subprocess.run(
        [server.binaries / name, *arguments],
        input=input,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr.decode()
    return ran.stdout


def as_text(db: Database, into: Database) -> None:
    dump = program(db.server, "pg_dump", "--dbname", db.dsn)
    program(
        db.server, "psql", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", into.dsn, input=dump
    )


def as_archive(db: Database, into: Database) -> None:
    dump = program(db.server, "pg_dump", "--format=custom", "--dbname", db.dsn)
    program(db.server, "pg_restore", "--exit-on-error", "--dbname", into.dsn, input=dump)


@pytest.fixture
def restored(server: Server) -> Iterator[Database]:
    """Where the backup goes: empty, until a test restores something into it."""
    database = Database(server, server.create_database())
    yield database
    database.close()
    server.drop_database(database.name)


@pytest.fixture
def lived_in(db: Database) -> tuple[Database, dict[str, list[Any]]]:
    """A database with a delivery in every place there is."""
    worker = Session(db)
    places: dict[str, list[Any]] = {}
    [places["completed"]] = [worker.publish(2)]
    worker.finish(worker.poll(2))
    places["dead"] = worker.publish(max_retries=0, payload={"dead": True})
    worker.finish(worker.poll(), action="fail", error="broken")
    places["failed"] = worker.publish(payload={"failed": True})
    worker.finish(worker.poll(), action="fail", error="once more")
    places["suspect"] = worker.publish(2)
    worker.poll(2)
    db.advance(seconds=61)
    worker.tick()
    places["batch"] = worker.publish(3, type="batched")
    places["batch claims"] = worker.poll(3, types=["batched"])
    worker.finish(places["batch claims"][:1])
    places["held"] = worker.publish(type="held")
    places["held claims"] = worker.poll(types=["held"], each=True)
    places["delayed"] = worker.publish(delay=3600)
    places["ready"] = worker.publish(2, type="ready", tags=["a"], payload={"n": "é\u2028"})
    db.sql("select headrace.create_namespace('other')")
    db.sql("select headrace.publish('other', '[{}]')")
    db.sql("select headrace.configure('retention', '9 months')")
    return db, places


def rows_of(db: Database) -> dict[str, list[Any]]:
    tables = db.sql(
        "select c.oid::regclass::text from pg_class c"
        " where c.relnamespace = 'headrace'::regnamespace and c.relkind = 'r' order by 1"
    )
    return {table: db.sql(f"select t::text from {table} t order by 1") for (table,) in tables}


def backend_of(db: Database, program: str) -> int:
    """The backend that serves a program, once there is one."""
    deadline = time.monotonic() + PATIENCE
    query = "select pid from pg_stat_activity where datname = %s and application_name = %s"
    while not (found := db.sql(query, [db.name, program])):
        assert time.monotonic() < deadline, f"{program} does not come"
        time.sleep(0.005)
    return found[0][0]


@pytest.mark.parametrize("backup", [as_text, as_archive])
@requirement("G1", "G17")
def test_everything_is_where_it_was(
    lived_in: tuple[Database, Any], restored: Database, backup: Callable[[Database, Database], None]
) -> None:
    db, _ = lived_in
    backup(db, restored)
    assert rows_of(restored) == rows_of(db)
    assert whole_catalogue(restored) == whole_catalogue(db)
    log = "select * from headrace.event_log order by id"
    assert restored.sql(log) == db.sql(log) != []
    assert restored.placement() == db.placement()
    assert migrate(restored.connect()) is False


@requirement("G1", "G4", "G9")
def test_work_goes_on_to_its_end(lived_in: tuple[Database, Any], restored: Database) -> None:
    db, places = lived_in
    as_archive(db, restored)
    worker = Session(restored)

    [new] = worker.publish(type="ready")
    [(drawn,)] = db.sql("select last_value from headrace.ids")
    assert new > drawn  # nothing that was numbered before is numbered again

    assert [claimed.id for claimed in worker.poll(9, types=["ready"])] == [*places["ready"], new]
    assert worker.poll(9, types=["batched", "held"]) == []  # still leased, as far as anybody knows
    restored.advance(seconds=61)
    worker.tick()
    back = {
        claimed.id: claimed
        for _ in range(20)
        for claimed in worker.poll(9, types=["batched", "held"])
    }
    assert sorted(back) == [*places["batch"][1:], *places["held"]]
    assert {claimed.attempt for claimed in back.values()} == {2}
    assert worker.finish(places["batch claims"][1:]) == ["lost"] * 2  # whoever had them before

    restored.advance(hours=2)
    finished: list[int] = []
    while claims := worker.poll(50):
        assert worker.finish(claims) == ["counted"] * len(claims)
        finished += [claimed.id for claimed in claims]
        restored.advance(minutes=5)
    restored.sql("select headrace.complete('other', id, attempt) from headrace.poll('other')")
    assert {*places["failed"], *places["suspect"], *places["delayed"]} <= set(finished)
    assert set(map(tuple, restored.placement().values())) == {("outcome",), ("dead",)}
    dead = restored.sql("select event, payload, error from headrace.dead_letters")
    assert dead == [(*places["dead"], {"dead": True}, "broken")]
    assert worker.outcomes(places["failed"][0]) == ["FAILED", "COMPLETED"]


def test_months_are_made_and_go_after_a_restore(
    lived_in: tuple[Database, Any], restored: Database
) -> None:
    db, _ = lived_in
    as_text(db, restored)
    worker = Session(restored)
    restored.advance(days=31 * 11)
    assert worker.tick(upkeep=True).kept_up
    months = "select count(*) from pg_inherits where inhparent = 'headrace.events'::regclass"
    assert restored.sql(months) != db.sql(months)
    worker.publish()
    assert restored.sql("select count(*) from headrace.events_default") == [(0,)]


@requirement("G17")
def test_a_dump_of_a_busy_database_is_of_one_moment(db: Database, restored: Database) -> None:
    """The dump reads table after table; what moves meanwhile is in it once, where it was when it began."""
    worker = Session(db)
    worker.publish(3)
    gate = Session(db)
    gate.begin()
    gate.sql("lock table headrace.ready in access exclusive mode")
    # It has begun, and waits for the one lock that it cannot have; the claim goes on meanwhile.
    dump = Background(program, db.server, "pg_dump", "--format=custom", "--dbname", db.dsn)
    db.wait_until_blocked(backend_of(db, "pg_dump"))
    claims = gate.poll(3)
    gate.commit()
    worker.finish(claims)
    program(
        db.server, "pg_restore", "--exit-on-error", "--dbname", restored.dsn, input=dump.result()
    )
    assert [len(places) for places in restored.placement().values()] == [1] * 3
