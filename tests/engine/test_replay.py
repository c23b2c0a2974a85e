"""replay: the events of a queue once more, in order, whoever commits late."""

import os
from typing import Any

import psycopg
import pytest

from headrace.embedded import EmbeddedPostgres
from headrace.install.migrate import migrate
from tests.database import Database
from tests.engine.functions_helpers import Engine, refused
from tests.folders import short_folder
from tests.requirements import requirement


class Replayer:
    """Somebody who reads again."""

    def __init__(self, db: Database, namespace: str = "default", **arguments: Any) -> None:
        self.engine = Engine(db, namespace)
        self.arguments = arguments
        self.after = arguments.pop("after", 0)
        self.mark: str | None = None
        self.is_done = False
        self.held_by: str | None = None

    def read(self) -> list[int]:
        *events, last = self.engine.call(
            "replay", namespace=self.engine.namespace, after=self.after, mark=self.mark, **self.arguments
        )  # fmt: skip
        assert last.type is None
        self.after, self.mark, self.is_done, self.held_by = last.id, last.next_mark, last.done, last.held_by  # fmt: skip
        return [event.id for event in events]

    def read_all(self) -> list[int]:
        told: list[int] = []
        while not self.is_done:
            told += self.read()
        return told


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


def test_everything_is_read_in_order_whatever_became_of_it(engine: Engine, db: Database) -> None:
    done, dead, late, keyed, waiting = engine.publish(
        {"type": "a"}, {"type": "b"}, {"delay": 60}, {"key": "k"}, {"type": "c", "payload": {"n": 1}, "tags": ["x"]}
    )  # fmt: skip
    engine.end("complete", engine.claim(types=["a"]))
    engine.end("finalize", engine.claim(types=["b"]), errors=["no"])
    assert Replayer(db).read_all() == [done, dead, late, keyed, waiting]
    assert Replayer(db, after=late).read_all() == [keyed, waiting]
    assert Replayer(db, types=["a", "c*"]).read_all() == [done, waiting]
    *_, last, _ = engine.call("replay", namespace="default")
    assert (last.type, last.tags, last.payload, last.priority) == ("c", ["x"], {"n": 1}, 5)


@requirement("QS-12")
def test_what_commits_late_is_read(engine: Engine, db: Database) -> None:
    publish = "select unnest(ids) from headrace.publish('default', '{}')"
    late = db.connect(autocommit=False)
    [(first,)] = late.execute(publish).fetchall()
    [second] = engine.publish({})
    replayer = Replayer(db)
    assert replayer.read() == []  # it does not pass
    assert not replayer.is_done
    assert f"process {late.info.backend_pid} " in (replayer.held_by or "")
    late.commit()
    assert replayer.read() == [first, second]
    assert replayer.is_done
    assert replayer.held_by is None


def test_it_ends_where_the_end_was_when_it_began(engine: Engine, db: Database) -> None:
    ids = engine.publish(*[{}] * 5)
    replayer = Replayer(db, limit=2)
    told = replayer.read()
    engine.publish({})
    while not replayer.is_done:
        told += replayer.read()
    assert told == ids
    assert Replayer(db, after=ids[-1]).read_all() != []


def test_who_publishes_later_does_not_hold_it_up(engine: Engine, db: Database) -> None:
    ids = engine.publish(*[{}] * 3)
    replayer = Replayer(db, limit=1)
    replayer.read()
    late = db.connect(autocommit=False)
    late.execute("select headrace.publish('default', '{}')")
    assert replayer.read_all() == ids[1:]


def test_it_begins_at_a_time(engine: Engine, db: Database) -> None:
    engine.publish({})
    db.advance(minutes=1)
    since = engine.now()
    ids = engine.publish(*[{}] * 2)
    assert Replayer(db, since=since).read_all() == ids


def test_a_queue_is_told_what_it_takes(engine: Engine, db: Database) -> None:
    engine.call("create_queue", namespace="default", queue="a", types=["a*"], tags=["x", "y"])
    engine.call("create_namespace", namespace="elsewhere")
    Engine(db, "elsewhere").publish({"type": "ab", "tags": ["x"]})
    mine, _, _ = engine.publish({"type": "ab", "tags": ["x"]}, {"type": "ab"}, {"type": "b", "tags": ["x"]})  # fmt: skip
    assert Replayer(db, queue="a").read_all() == [mine]
    assert Replayer(db, queue="a", types=["b"]).read_all() == []
    engine.call("change_queue", namespace="default", queue="a", settings='{"takes": false}')
    assert Replayer(db, queue="a").read_all() == [mine]


def test_what_was_erased_is_not_told_and_what_was_carried_over_is(
    engine: Engine, db: Database
) -> None:
    erased, carried, plain = engine.publish({}, {"type": "b"}, {"payload": {"erased": True}})
    engine.end("complete", engine.claim())
    engine.call("erase", namespace="default", event_id=erased)
    db.sql("insert into headrace.events_carried select * from headrace.events where id = %s", [carried])  # fmt: skip
    db.sql("delete from headrace.events where id = %s", [carried])
    assert Replayer(db).read_all() == [carried, plain]


def test_little_among_much_is_found(
    engine: Engine, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    [source] = db.sql("select pg_get_functiondef('headrace.replay'::regproc)")[0]
    db.sql(source.replace("most constant int := 20000", "most constant int := 10"))
    first = engine.publish(*[{}] * 25, {"type": "rare"})[-1]
    last = engine.publish(*[{}] * 30, {"type": "rare"}, *[{}] * 15)[30]
    assert Replayer(db, types=["rare"]).read_all() == [first, last]
    assert len(Replayer(db, limit=7).read_all()) == 72


def test_what_makes_no_sense_is_refused(engine: Engine) -> None:
    for wrong in ({"limit": 0}, {"limit": 1001}, {"after": None}):
        with refused("QU001"):
            engine.call("replay", namespace="default", **wrong)
    assert engine.call("replay", namespace="default", mark="nonsense")[-1].done
    with refused("QU030"), engine.connection.transaction():
        engine.connection.execute("set transaction isolation level repeatable read")
        engine.call("replay", namespace="default")


@pytest.mark.long
def test_a_standby_does_not_know_who_is_writing_and_says_so() -> None:
    with short_folder() as folder:
        with EmbeddedPostgres(folder / "data") as primary:
            with psycopg.connect(primary.dsn, autocommit=True) as connection:
                migrate(connection)
                connection.execute("select headrace.publish('default', '{}')")
                connection.execute("select headrace.checkpoint('default')")
            inside = next(primary.data.rglob("PG_VERSION")).parent
        signal = inside / "standby.signal"
        signal.touch()
        os.chown(signal, inside.stat().st_uid, inside.stat().st_gid)
        with (
            EmbeddedPostgres(folder / "data") as standby,
            psycopg.connect(standby.dsn, autocommit=True) as connection,
        ):
            for reads in ("replay", "log_since"):
                with pytest.raises(psycopg.errors.ReadOnlySqlTransaction, match="read there"):
                    connection.execute(f"select headrace.{reads}('default')")
            [(total,)] = connection.execute("select total from headrace.state('default')")
    assert total == 1
