"""Where nothing but pgmq's functions is called, they keep the database up."""

import pytest

from headrace.install.migrate import migrate
from tests.database import Database


@pytest.fixture
def db(db: Database) -> Database:
    migrate(db.connect(), add=["pgmq"])
    db.sql("select pgmq.create('q')")
    return db


def count(db: Database, table: str) -> int:
    [(rows,)] = db.sql(f"select count(*) from headrace.{table}")
    return int(rows)


def pass_through(db: Database) -> None:
    [(sent,)] = db.sql("select pgmq.send('q', '{}'::jsonb)")
    assert [one for (one,) in db.sql("select msg_id from pgmq.read('q', 30, 1)")] == [sent]
    assert db.sql("select pgmq.delete('q', %s::bigint)", [sent]) == [(True,)]


def test_the_calls_fold_what_they_count(db: Database) -> None:
    """One in a hundred does: that none of 1,500 did is as likely as to win in a lottery."""
    for _ in range(500):
        pass_through(db)
    [(published,)] = db.sql("select coalesce(sum(published), 0) from headrace.totals")
    assert published > 0
    assert count(db, "counts") + published < 1500


def test_one_that_keeps_up_does_what_an_hour_asks_for(db: Database) -> None:
    pass_through(db)
    db.advance(days=40)
    assert count(db, "counts") > 0
    db.sql("select pgmq._keep_up()")
    assert count(db, "counts") == 0
    for _ in range(10):
        db.sql("select pgmq._keep_up()")
    [(there,)] = db.sql(
        "select to_regclass('headrace.events_' ||"
        " to_char(headrace._now() at time zone 'UTC' + interval '2 months', 'YYYY_MM')) is not null"
    )
    assert there
    assert count(db, "bindings") == 0


def test_in_a_longer_transaction_nobody_waits_for_it(db: Database) -> None:
    """It tidies, and makes no month: whoever reads events meanwhile would wait for the end of it."""
    pass_through(db)
    db.advance(days=40)
    db.sql("delete from headrace.upkeep")  # one call in a hundred has kept up
    with db.connect() as worker, worker.transaction():
        worker.execute("select 1")
        worker.execute("select pgmq._keep_up()")
        assert worker.execute("select task from headrace.upkeep").fetchall() == [("tidy",)]
        locks = worker.execute(
            "select count(*) from pg_locks where pid = pg_backend_pid() and mode = 'AccessExclusiveLock'"
            " and relation in (select oid from pg_class where relnamespace = 'headrace'::regnamespace)"
        ).fetchone()
        assert locks == (0,)
        pass_through(db)
    assert count(db, "bindings") == 1


def test_where_somebody_ticks_the_calls_leave_it_to_it(db: Database) -> None:
    db.sql("select headrace.tick()")
    pass_through(db)
    before = count(db, "counts")
    db.sql("select pgmq._keep_up()")
    assert count(db, "counts") == before > 0


def test_what_fails_in_it_fails_no_call(db: Database) -> None:
    db.sql("alter table headrace.totals rename to elsewhere")
    pass_through(db)
    said: list[str | None] = []
    with db.connect() as caller:
        caller.add_notice_handler(lambda notice: said.append(notice.message_primary))
        caller.execute("select pgmq._keep_up()")
    assert "upkeep by pgmq failed" in str(said)
