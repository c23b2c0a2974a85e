"""Readers, deleters and ticks at the same time: a message has one holder and one end."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tests.database import Database
from tests.pgmq.test_functions import Pgmq, places


@pytest.fixture
def pgmq(db: Database) -> Pgmq:
    pgmq = Pgmq(db)
    pgmq("create", "jobs")
    return pgmq


def test_many_readers_get_every_message_once(pgmq: Pgmq, db: Database) -> None:
    ids = pgmq.send("jobs", *[{"n": n} for n in range(200)])

    def work(number: int) -> list[int]:
        reader, got = Pgmq(db), []
        with closing(reader.connection):
            while messages := reader.read("jobs", 7) if number else reader("pop", "jobs", 7):
                read = [m[0] for m in messages]
                if number:
                    assert reader("delete", "jobs", read) == read
                got += read
        return got

    with ThreadPoolExecutor(4) as threads:
        done = [id for got in threads.map(work, range(4)) for id in got]
    # One may have seen nothing while another had the last ones locked.
    done += [m[0] for m in pgmq("pop", "jobs", 200)]
    assert sorted(done) == ids
    assert places(db) == {"ready": 0, "delayed": 0, "held": 0, "leases": 0, "dead": 0}


def test_a_tick_waits_for_no_delete_and_takes_nothing_from_it(pgmq: Pgmq, db: Database) -> None:
    [id] = pgmq.send("jobs", {})
    pgmq.read("jobs")
    db.advance(seconds=31)
    with pgmq.connection.transaction():
        assert pgmq("delete", "jobs", id) == [True]
        db.sql("select headrace.tick()")
        assert Pgmq(db).read("jobs") == []
    assert Pgmq(db).read("jobs") == []
    assert places(db) == {"ready": 0, "delayed": 0, "held": 0, "leases": 0, "dead": 0}


def test_a_tick_takes_nothing_from_who_asks_for_more_time(pgmq: Pgmq, db: Database) -> None:
    [id] = pgmq.send("jobs", {})
    pgmq.read("jobs")
    db.advance(seconds=31)
    with pgmq.connection.transaction():
        assert [m[0] for m in pgmq("set_vt", "jobs", id, 60)] == [id]
        db.sql("select headrace.tick()")
    db.sql("select headrace.tick()")
    assert Pgmq(db).read("jobs") == []
    assert pgmq("delete", "jobs", id) == [True]


def test_of_two_deletes_one_did_it(pgmq: Pgmq, db: Database) -> None:
    [id] = pgmq.send("jobs", {})
    pgmq.read("jobs")
    other = Pgmq(db)
    with ThreadPoolExecutor(1) as thread:
        with pgmq.connection.transaction():
            assert pgmq("delete", "jobs", id) == [True]
            second = thread.submit(other, "delete", "jobs", id)
            db.wait_until_blocked(other.connection)
        assert second.result() == [False]


def test_what_somebody_has_locked_is_busy(pgmq: Pgmq, db: Database) -> None:
    [id] = pgmq.send("jobs", {})
    other = Pgmq(db)
    with pgmq.connection.transaction():
        pgmq.read("jobs")
        with pytest.raises(Exception, match="right now, and nothing was changed"):
            other("set_vt", "jobs", id, 60)
        with pytest.raises(Exception, match="right now, and nothing was changed"):
            other("delete", "jobs", id)
