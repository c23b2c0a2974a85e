"""The checks of replication, by two servers of which one follows the other."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headrace.doctor import CHECKS, Diagnosis, Limits, examine
from tests.folders import short_folder
from tests.laboratory.house import House, eventually
from tests.laboratory.pair import CANCEL, Pair

NOTHING = timedelta(0)
SYNCHRONOUS = "select from pg_stat_replication where sync_state = 'sync'"


@contextmanager
def two_servers(*, synchronous: bool = True) -> Iterator[Pair]:
    with short_folder() as folder:
        pair = Pair(folder, synchronous=synchronous)
        try:
            yield pair
        finally:
            pair.close()


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with two_servers() as pair:
        yield pair


@pytest.fixture
def split() -> Iterator[Pair]:
    """Of its own for who lets the two go ways of their own."""
    with two_servers() as pair:
        yield pair


def look(house: House, check: str, dsn: str | None = None, **limits: Any) -> list[Diagnosis]:
    [wanted] = [known for known in CHECKS if known.name == check]
    dsn = dsn or house.dsn
    with psycopg.connect(house.dsn, autocommit=True) as connection:
        return list(examine(connection, dsn, checks=[wanted], limits=replace(Limits(), **limits)))


def one(house: House, check: str, dsn: str | None = None, **limits: Any) -> Diagnosis:
    [found] = look(house, check, dsn, **limits)
    return found


def as_superuser(pair: Pair) -> str:
    """The DSN of both; a password in it is not needed."""
    return make_conninfo(pair.dsn, user="postgres", password="")


@contextmanager
def setting(house: House, name: str, value: str) -> Iterator[None]:
    """Over a connection that waits for nobody."""
    with psycopg.connect(house.dsn, autocommit=True) as connection:
        connection.execute("set synchronous_commit = local")
        for words in (f"set {name} = {value}", f"reset {name}"):
            connection.execute(f"alter system {words}")
            connection.execute("select pg_reload_conf()")
            shown = value if words.startswith("set") else None
            eventually(lambda shown=shown: shown in (None, repr(house.sql(f"show {name}")[0][0])))
            if shown:
                yield


def is_synchronous(pair: Pair) -> bool:
    return bool(pair.first.sql(SYNCHRONOUS))


def test_it_is_said_who_has_every_commit(pair: Pair) -> None:
    eventually(lambda: is_synchronous(pair))
    found = one(pair.first, "synchronous")
    assert (found.state, found.says) == ("fine", "follower has every acknowledged commit")
    assert "its primary knows" in one(pair.second, "synchronous").says
    assert "its primary knows" in one(pair.second, "standbys").says


def test_an_asynchronous_standby_is_found(pair: Pair) -> None:
    with setting(pair.first, "synchronous_commit", "'local'"):
        found = one(pair.first, "synchronous")
        assert (found.state, "synchronous_commit is local" in found.says) == ("warning", True)


def test_a_standby_nobody_waits_for_is_found() -> None:
    with two_servers(synchronous=False) as pair:
        found = one(pair.first, "synchronous")
    assert (found.state, found.says.split(":")[0]) == ("warning", "follower is asynchronous")


def test_a_primary_whose_standby_is_gone_is_found(pair: Pair) -> None:
    assert one(pair.first, "waiting_commits", commits=NOTHING).state == "fine"
    pair.second.stop(signal.SIGINT)
    eventually(lambda: not is_synchronous(pair))
    found = one(pair.first, "synchronous")
    assert (found.state, found.says.split(":")[0]) == ("problem", "no commit ends")
    assert "nobody" in found.says

    def publish() -> None:
        with suppress(psycopg.Error), pair.first.connect() as connection:
            connection.execute("select headrace.publish('default', '{}')")

    waiter = threading.Thread(target=publish)
    waiter.start()
    eventually(lambda: one(pair.first, "waiting_commits", commits=NOTHING).state == "problem")
    [away] = [f for f in look(pair.first, "hosts", as_superuser(pair)) if "answer" in f.says]
    assert away.state == "warning"
    pair.first.sql(CANCEL)
    waiter.join()
    pair.second.start()
    eventually(lambda: one(pair.first, "synchronous").state == "fine")


def test_a_standby_that_is_behind_is_found(pair: Pair) -> None:
    eventually(lambda: is_synchronous(pair))
    eventually(lambda: one(pair.first, "standbys").says == "1 connected, none behind")
    pair.second.sql("select pg_wal_replay_pause()")
    pair.first.sql("select headrace.publish('default', '{}')")
    eventually(lambda: one(pair.first, "standbys", behind=0).state == "warning")
    assert "follower is " in one(pair.first, "standbys", behind=0).says
    pair.second.sql("select pg_wal_replay_resume()")
    eventually(lambda: one(pair.first, "standbys").state == "fine")


def test_a_slot_whose_reader_is_far_behind_is_found(pair: Pair) -> None:
    pair.first.sql("select pg_create_physical_replication_slot('slow', true)")
    found = one(pair.first, "replication_slots")
    assert (found.state, "has no reader" in found.says) == ("warning", True)
    with setting(pair.second, "primary_slot_name", "'slow'"):
        eventually(lambda: one(pair.first, "replication_slots").state == "fine")
        found = one(pair.first, "replication_slots", slot=-1)
        assert (found.state, "the reader of" in found.says) == ("warning", True)
    eventually(lambda: "has no reader" in one(pair.first, "replication_slots").says)
    pair.first.sql(str(one(pair.first, "replication_slots").mend).partition("  --")[0])
    assert one(pair.first, "replication_slots").state == "fine"


def test_who_may_not_see_standbys_is_told_so(pair: Pair) -> None:
    eventually(lambda: is_synchronous(pair))
    pair.first.sql("create role looker login")
    dsn = make_conninfo(pair.first.dsn, user="looker")
    names = ("synchronous", "waiting_commits", "standbys")
    with psycopg.connect(dsn, autocommit=True) as connection, pair.first.connect() as other:
        other.execute("select")
        checks = [check for check in CHECKS if check.name in names]
        found = list(examine(connection, dsn, checks=checks))
    assert [one.check for one in found] == list(names)
    assert {one.state for one in found} == {"unknown"}
    assert {one.mend for one in found} == {"grant pg_read_all_stats to looker"}


def test_a_dsn_that_accepts_any_host_is_found(pair: Pair) -> None:
    dsn = as_superuser(pair)
    found = one(pair.first, "hosts", dsn)
    assert (found.state, "of 2 hosts" in found.says) == ("fine", True)
    assert one(pair.first, "hosts").says == "the DSN names one host"
    careless = make_conninfo(dsn, target_session_attrs="any")
    found = one(pair.first, "hosts", careless)
    assert (found.state, "accepts any" in found.says) == ("problem", True)


def test_an_orphan_is_found_and_named(split: Pair) -> None:
    split.second.sql("select pg_promote()")
    eventually(lambda: split.second.sql("select not pg_is_in_recovery()")[0][0])
    found = one(split.first, "hosts", as_superuser(split))
    host = conninfo_to_dict(split.first.dsn)["host"]
    assert found.state == "problem"
    assert f"{host}:5432 was replaced by a failover" in found.says
    assert str(found.mend).startswith(f"stop PostgreSQL on {host}:5432")
    split.first.stop(signal.SIGINT)
    eventually(lambda: one(split.second, "hosts", as_superuser(split)).state == "warning")
