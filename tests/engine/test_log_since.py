"""log_since: the log as a stream that skips nothing, whoever commits late."""

import random
import re
import threading
from typing import Any, get_args

import psycopg
import pytest

from headrace.model import Action
from tests.database import STRIDE, Database
from tests.engine.backlog import Consumer, fill
from tests.engine.footprint import footprint
from tests.engine.functions_helpers import Engine, another_life, refused
from tests.requirements import requirement


class Reader:
    """Somebody who follows the log."""

    def __init__(self, db: Database, namespace: str = "default", **arguments: Any) -> None:
        self.engine = Engine(db, namespace)
        self.arguments = arguments
        self.after = 0
        self.mark: str | None = None
        self.entries: list[Any] = []

    def read(self) -> list[Any]:
        *entries, last = self.engine.call(
            "log_since", namespace=self.engine.namespace, after=self.after, mark=self.mark, **self.arguments
        )  # fmt: skip
        assert last.action is None
        assert all(entry.next_mark is None for entry in entries)
        self.after, self.mark = last.id, last.next_mark
        self.entries += entries
        return [(entry.event_id, entry.action) for entry in entries]

    @property
    def ids(self) -> list[int]:
        return [entry.id for entry in self.entries]


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


@pytest.fixture
def reader(db: Database) -> Reader:
    return Reader(db)


@requirement("G17", "API-15")
def test_everything_that_happened_is_told_in_order(
    engine: Engine, reader: Reader, db: Database
) -> None:
    [first, second] = engine.publish({"type": "a"}, {"type": "b", "producer": "p"})
    assert reader.read() == [(first, "EMITTED"), (second, "EMITTED")]
    assert [entry.type for entry in reader.entries] == ["a", "b"]
    assert [entry.worker_id for entry in reader.entries] == [None, "p"]
    batch = engine.claim(types=["a"], worker="w")
    assert reader.read() == [(first, "PICKED")]
    engine.end("fail", batch, error="boom")
    held = engine.claim(types=["b"], each=True, worker="v")
    engine.end("complete", held)  # picked and ended before anybody looked
    assert reader.read() == [(first, "FAILED"), (second, "PICKED"), (second, "COMPLETED")]
    failed = reader.entries[3]
    assert (failed.queue, failed.worker_id, failed.attempt, failed.error_message) == ("main", "w", 1, "boom")  # fmt: skip
    assert reader.read() == []
    engine.call("cancel", namespace="default", event_id=first, actor="boss", reason="enough")
    assert reader.read() == [(first, "CANCELLED")]
    assert reader.entries[-1].worker_id == "boss"

    [whole] = db.sql("select array_agg(id order by id) from headrace.event_log")
    assert reader.ids == whole[0]


def test_a_page_ends_where_the_next_goes_on(engine: Engine, db: Database) -> None:
    engine.publish(*({"payload": n} for n in range(20)))
    engine.finish(engine.poll(12))
    engine.poll(5, each=True)
    [(whole,)] = db.sql("select array_agg(id order by id) from headrace.event_log")
    assert len(whole) == 20 + 12 + 12 + 5
    for limit in (1, 3, 7, 1000):
        reader = Reader(db, limit=limit)
        while page := reader.read():
            assert len(page) <= limit
        assert reader.ids == whole
    *_, last = engine.call("log_since", namespace="default", after=whole[30], limit=1000)
    [row, _] = engine.call("log_since", namespace="default", after=whole[30], limit=1)
    assert row.id == whole[31]
    assert last.id >= whole[-1]


def test_only_some_actions_are_told_on_request(engine: Engine, db: Database) -> None:
    [first, _] = engine.publish({}, {})
    engine.finish(engine.poll(2), {"1": {"action": "fail"}})
    assert Reader(db, actions=["FAILED"]).read() == [(first, "FAILED")]
    assert {action for _, action in Reader(db, actions=["PICKED", "EMITTED"]).read()} == {
        "PICKED",
        "EMITTED",
    }


@requirement("G17")
def test_what_commits_late_is_waited_for(engine: Engine, reader: Reader, db: Database) -> None:
    late = db.connect(autocommit=False)
    [(early,)] = late.execute(
        "select unnest(ids) from headrace.publish('default', '{}')"
    ).fetchall()
    [later] = engine.publish({})
    claim = engine.claim()
    for _ in range(3):
        assert reader.read() == []
    late.commit()
    engine.end("complete", claim)
    assert reader.read() == [
        (early, "EMITTED"), (later, "EMITTED"), (later, "PICKED"), (later, "COMPLETED"),
    ]  # fmt: skip


def test_a_late_claim_and_a_late_end_are_waited_for(
    engine: Engine, reader: Reader, db: Database
) -> None:
    [first, second] = engine.publish({"type": "a"}, {"type": "b"})
    assert len(reader.read()) == 2
    late = db.connect(autocommit=False)
    late.execute("select * from headrace.poll('default', types => '{a}')")
    engine.claim(types=["b"])
    assert reader.read() == []
    late.commit()
    assert reader.read() == [(first, "PICKED"), (second, "PICKED")]
    late.execute("select headrace.complete('default', %s, 1)", [first])
    engine.publish({})
    assert reader.read() == []
    late.rollback()
    assert [action for _, action in reader.read()] == ["EMITTED"]


def test_a_commit_in_two_phases_is_waited_for(engine: Engine, reader: Reader, db: Database) -> None:
    # PostgreSQL prepares nothing that has sent a notification.
    db.sql(
        "create or replace function headrace._wake(queue int) returns void language sql as 'select'"
    )
    publisher = db.connect()
    publisher.execute("begin")
    [(early,)] = publisher.execute("select unnest(ids) from headrace.publish('default', '{}')").fetchall()  # fmt: skip
    [later] = engine.publish({})
    assert reader.read() == []
    publisher.execute("prepare transaction 'late'")
    publisher.execute("begin")
    publisher.execute("select headrace.publish('default', '{}')")
    for _ in range(3):
        assert reader.read() == []
    engine.connection.execute("commit prepared 'late'")
    assert reader.read() == [(early, "EMITTED"), (later, "EMITTED")]


def test_who_writes_elsewhere_holds_nobody_up(engine: Engine, reader: Reader, db: Database) -> None:
    db.sql("create table public.mine (n int)")
    handler = db.connect(autocommit=False)
    handler.execute("insert into public.mine values (1)")
    handler.execute("select * from headrace.stats('default')")
    [id] = engine.publish({})
    assert reader.read() == [(id, "EMITTED")]
    handler.rollback()


def test_those_who_come_and_go_hold_nobody_up(engine: Engine, reader: Reader, db: Database) -> None:
    """There is always somebody writing, and never the same."""
    reader.read()
    writers = [db.connect(autocommit=False) for _ in range(2)]
    published = []
    writers[0].execute("select headrace.publish('default', '{}')")
    for n in range(1, 6):
        [(id,)] = writers[n % 2].execute("select unnest(ids) from headrace.publish('default', '{}')").fetchall()  # fmt: skip
        published.append(id)
        writers[(n + 1) % 2].commit()
        reader.read()
    told = [entry.event_id for entry in reader.entries]
    assert told[-3:] == published[:3] or told[-1] in published[2:], "it goes on while they write"
    for writer in writers:
        writer.commit()
    reader.read()
    assert reader.ids == [id for (id,) in db.sql("select id from headrace.event_log order by id")]


def test_a_mark_may_be_lost_or_nonsense(engine: Engine, reader: Reader) -> None:
    [id] = engine.publish({})
    for mark in (None, "", "nonsense", "1 2 3", "0 0 0 9/9", "0 0 0 "):
        reader.after, reader.mark = 0, mark
        assert reader.read() == [(id, "EMITTED")]


PUBLISH = """
select headrace.publish('default', (select jsonb_agg('{}'::jsonb) from generate_series(1, %s)))
"""
POLL = "select id, attempt, lease from headrace.poll('default', max_events => %s, \"each\" => %s)"
FINISH = "select headrace.finish('default', 'main', %s, %s, %s)"


class Writer(threading.Thread):
    """Publishes, claims and finishes, and takes some of it back."""

    def __init__(self, db: Database, chance: random.Random, stop: threading.Event) -> None:
        super().__init__()
        self.connection = db.connect(autocommit=False)
        self.chance = chance
        self.stop = stop
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                self.step()
        except BaseException as error:
            self.error = error
            self.stop.set()

    def step(self) -> None:
        self.connection.execute(PUBLISH, [self.chance.randrange(1, 5)])
        self.end(0.3)
        claims = self.connection.execute(
            POLL, [self.chance.randrange(1, 5), self.chance.random() < 0.5]
        ).fetchall()
        self.end(0)
        if claims and self.chance.random() < 0.8:
            columns = [list(column) for column in zip(*claims, strict=True)]
            self.connection.execute(FINISH, columns)
            self.end(0.3)

    def end(self, taken_back: float) -> None:
        if self.chance.random() < taken_back:
            self.connection.rollback()
        else:
            self.connection.commit()


@requirement("G17")
@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_skipped_while_many_write(db: Database, seed: int) -> None:
    stop = threading.Event()
    writers = [Writer(db, random.Random(seed * 100 + n), stop) for n in range(4)]
    for writer in writers:
        writer.start()
    reader = Reader(db, limit=50)
    while len(reader.entries) < 1500 and not stop.is_set():
        reader.read()
    stop.set()
    for writer in writers:
        writer.join()
    assert [writer.error for writer in writers] == [None] * 4
    while reader.read():
        pass
    assert reader.ids == [id for (id,) in db.sql("select id from headrace.event_log order by id")]


@requirement("G16")
def test_namespaces_are_told_apart(engine: Engine, db: Database) -> None:
    engine.call("create_namespace", namespace="other")
    engine.publish({})
    engine.finish([engine.claim()])
    assert Reader(db, "other").read() == []
    [id] = Engine(db, "other").publish({})
    assert Reader(db, "other").read() == [(id, "EMITTED")]


def test_what_cannot_be_asked_is_refused(engine: Engine, db: Database) -> None:
    for wrong in ({"limit": 0}, {"limit": 1001}, {"limit": None}, {"after": None}):
        with refused("QU001"):
            engine.call("log_since", namespace="default", **wrong)
    with refused("QU010"):
        engine.call("log_since", namespace="nowhere")
    connection = db.connect(autocommit=False)
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with refused("QU030"):
        connection.execute("select * from headrace.log_since('default')")


@pytest.mark.new_database
@pytest.mark.parametrize("known", [False, True])
def test_it_costs_what_it_tells(db: Database, known: bool) -> None:
    fill(db, 20_000)
    consumer = Consumer(db, max_events=1)
    for _ in range(500):
        consumer.claim()
        consumer.complete()
    db.sql("select brin_summarize_new_values(c.oid) from pg_class c where c.relkind = 'i' and c.relname like 'outcomes%lease_idx'")  # fmt: skip
    if known:
        db.sql("analyze")
    [(middle, end)] = db.sql("select percentile_disc(0.9) within group (order by id), max(id) from headrace.event_log")  # fmt: skip
    for after in (0, middle, end - 30 * 1024 * STRIDE):
        rows, touched = footprint(
            consumer.connection, "select * from headrace.log_since('default', %s, 20)", [after]
        )
        assert len(rows) > 2
        assert touched.total.entries < 2000, f"{after}\n{touched}"


def test_what_it_never_tells_is_not_asked_for(engine: Engine, reader: Reader, db: Database) -> None:
    for actions, named in ((["FAILED", "SLEPT"], "'SLEPT': there are EMITTED, "), ([None], "null")):
        with refused("QU001", named):
            engine.call("log_since", namespace="default", actions=actions)
    # And that is the same list here and there.
    [(body,)] = db.sql("select prosrc from pg_proc where proname = 'log_since'")
    body = re.sub(r"'\s*\n\s*'", "", body)  # a string may go on in the next line
    assert re.findall(r"\{([A-Z_,]+)\}", body) == [",".join(get_args(Action))]


class TestCursors:
    """What becomes of a place in the log when its database is promoted, restored, or another one."""

    def test_a_cursor_stands_at_what_was_told_or_was_drawn_before_a_commit(
        self, engine: Engine, reader: Reader, db: Database
    ) -> None:
        [told] = engine.publish({})
        reader.read()
        assert reader.after == told << 10
        db.sql("select nextval('headrace.ids') from generate_series(1, 100)")
        assert reader.read() == []
        assert reader.after < told + 1 << 10
        db.sql("select headrace.save_state('default')")  # commits how far the numbers are
        reader.read()
        assert reader.after == (told + 100 * STRIDE + 1 << 10) - 1

    def test_in_another_life_it_goes_back_to_what_was_surely_drawn_before(
        self, engine: Engine, reader: Reader, db: Database
    ) -> None:
        first = engine.publish({}, {})
        reader.read()
        db.sql("select headrace.save_state('default')")
        second = engine.publish({}, {})
        reader.read()
        cursor, mark = (reader.mark or "").partition(" ")[0], reader.mark
        another_life(db)
        third = engine.publish({})
        for kept in (cursor, mark):
            *told, last = engine.call("log_since", namespace="default", mark=kept)
            assert [entry.event_id for entry in told] == [*second, *third]
            assert last.rewound_to == (first[-1] + 1 << 10) - 1
        reader.mark = mark
        reader.read()
        assert reader.read() == []  # it is one of this life now
        # One that had not come further than that has nothing to go back for.
        early = f"{cursor.partition('-')[0]}-{first[0] << 10}"
        *told, last = engine.call("log_since", namespace="default", mark=early)
        assert [entry.event_id for entry in told] == [first[1], *second, *third]
        assert last.rewound_to is None

    def test_after_a_restore_all_that_is_new_is_told(
        self, engine: Engine, reader: Reader, db: Database
    ) -> None:
        """The backup is older than the cursor, and numbers its events anew."""
        engine.publish({})
        reader.read()
        db.sql("select headrace.save_state('default')")
        [(drawn,)] = db.sql("select last_value from headrace.ids")
        lost = engine.publish(*[{}] * 50)
        reader.read()
        db.sql("delete from headrace.events where id = any (%s)", [lost])
        db.sql("delete from headrace.ready where event = any (%s)", [lost])
        db.sql("select setval('headrace.ids', %s)", [drawn])
        another_life(db)
        instead = engine.publish(*[{}] * 50)
        assert instead == lost
        reader.read()
        told = [entry.event_id for entry in reader.entries]
        assert told[-50:] == instead

    @pytest.mark.parametrize("function", ["log_since", "replay"])
    def test_what_lies_beyond_the_end_is_refused(
        self, engine: Engine, db: Database, function: str
    ) -> None:
        engine.publish({})
        [(end, number)] = db.sql("select headrace.log_end(), last_value from headrace.ids")
        last = end if function == "log_since" else number
        engine.call(function, namespace="default", after=last)
        with refused("QU015", f"{last + 1} is beyond the end"):
            engine.call(function, namespace="default", after=last + 1)

    def test_a_cursor_of_a_copy_that_is_not_known_is_refused(self, engine: Engine) -> None:
        with refused("QU015", "'1abc-5' is of a copy of this database"):
            engine.call("log_since", namespace="default", mark="1abc-5")

    def test_who_may_only_read_is_told_as_well(self, engine: Engine, db: Database) -> None:
        """A reader notes the life of the database, where it may."""
        another_life(db)
        [id] = engine.publish({})
        connection = db.connect(autocommit=False)
        connection.execute("set transaction read only")
        rows = connection.execute("select event_id from headrace.log_since('default')").fetchall()
        assert rows == [(id,), (None,)]

    def test_what_happens_from_now_on_is_told(self, engine: Engine, reader: Reader) -> None:
        engine.publish({})
        [now] = engine.call("log_now")
        assert now.position == engine.call("log_end")[0][0]
        reader.mark = now.mark
        assert reader.read() == []
        [id] = engine.publish({})
        assert reader.read() == [(id, "EMITTED")]
