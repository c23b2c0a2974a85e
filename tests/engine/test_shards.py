"""Which shard a database is: how it becomes one, and stays it. Its numbers name it, for ever."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

import pytest

import headrace
from headrace.doctor import CHECKS, examine
from headrace.doctor.findings import Diagnosis
from headrace.driver.borrow import Borrowed, Borrows
from headrace.engine.shard_routes import Use
from headrace.engine.verbs import signature_of
from headrace.errors import Busy, InvalidInput, SchemaMismatch, SequenceBehind
from headrace.install.migrate import migrate, script
from tests.database import Database
from tests.engine.races_helpers import Background, Session
from tests.engine.test_migrate import age

STRIDES = (1, 8, 64, 1024)
Make = Callable[..., Database]


def shard_of(db: Database) -> tuple[int, int, int]:
    [row] = db.sql("select stride, shard, mark from headrace.shard()")
    return row


def published(db: Database, count: int = 1) -> list[int]:
    events = '[{"type": "a", "payload": {}}]'
    [(ids,)] = db.sql(
        "select array(select (headrace.publish('default', %s)).ids[1] from generate_series(1, %s))",
        [events, count],
    )
    return ids


def numbers(db: Database) -> Diagnosis:
    """What the doctor says about them."""
    [found] = examine(db.connect(), db.dsn, checks=[one for one in CHECKS if one.name == "numbers"])
    return found


class TestBecomingOne:
    def test_a_database_is_the_only_one_of_its_kind_unless_it_is_told_otherwise(
        self, empty_db: Database
    ) -> None:
        migrate(empty_db.connect())
        assert shard_of(empty_db) == (1, 0, 0)
        assert published(empty_db, 3) == [1, 2, 3]
        identity = "select s.identity = i.id from headrace.shard() s, headrace.identity i"
        assert empty_db.sql(identity) == [(True,)]

    @pytest.mark.parametrize("stride", STRIDES)
    def test_every_number_of_a_shard_leaves_the_number_of_the_shard(
        self, shard: Make, stride: int
    ) -> None:
        number = stride * 3 // 8
        db = shard(stride, number)
        assert shard_of(db) == (stride, number, 0)
        queue = db.queue()
        ids = queue.publish_many([("a", n) for n in range(300)])
        assert [id - ids[0] for id in ids] == [n * stride for n in range(300)]
        claimed = queue.poll(max_events=100)
        queue.complete(claimed)
        drawn = "select id from headrace.events union all select id from headrace.outcomes"
        numbers = [id for (id,) in db.sql(drawn)] + [one.lease for one in claimed]
        entries = queue.log_since(limit=1000).entries
        numbers += [entry.id >> 10 for entry in entries]
        assert len(entries) == 500
        assert {number % stride for number in numbers} == {number}

    def test_the_first_number_of_shard_0_is_its_stride(self, empty_db: Database) -> None:
        headrace.migrate(empty_db.dsn, stride=64)
        assert published(empty_db, 2) == [64, 128]  # an event 0 would be taken for none

    def test_migrate_from_python_takes_the_dsn(self, empty_db: Database) -> None:
        assert headrace.migrate(empty_db.dsn, stride=64, shard=3) is True
        assert headrace.migrate(empty_db.dsn) is False
        assert published(empty_db) == [3]

    def test_the_script_makes_the_same_shard(self, empty_db: Database) -> None:
        for _ in range(2):
            empty_db.sql(script(stride=64, shard=3))
        assert shard_of(empty_db) == (64, 3, 0)
        assert published(empty_db, 2) == [3, 67]
        empty_db.sql(script())
        assert shard_of(empty_db) == (64, 3, 0)

    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ({"stride": 0}, "not a power of two"),
            ({"stride": 6}, "not a power of two"),
            ({"stride": 2048}, "not a power of two"),
            ({"stride": -64}, "not a power of two"),
            ({"stride": 64, "shard": 64}, "from 0 to 63"),
            ({"stride": 64, "shard": -1}, "from 0 to 63"),
            ({"shard": 3}, "name the stride"),
        ],
    )
    def test_what_cannot_be_is_refused_before_anything_is_done(
        self, empty_db: Database, options: dict[str, int], problem: str
    ) -> None:
        with pytest.raises(InvalidInput, match=problem):
            migrate(empty_db.connect(), **options)
        with pytest.raises(InvalidInput, match=problem):
            script(**options)


def test_a_stride_costs_no_more_rows(shard: Make) -> None:
    """Packs and the log's rows hold as many events at every stride: those of neighbours on the number line."""
    rows = {}
    for stride in STRIDES:
        db = shard(stride)  # shard 0: its first place is that of the only one
        queue = db.queue()
        for _ in range(2):
            queue.publish_many([("a", n) for n in range(1000)])
        [(ready,)] = db.sql("select count(*) from headrace.ready")
        while claimed := queue.poll(max_events=500):
            queue.complete(claimed)
        [(outcomes,)] = db.sql("select count(*) from headrace.outcomes")
        rows[stride] = ready, outcomes
    assert rows[1][0] < 2000 / 64
    assert rows[1][1] < 8
    assert set(rows.values()) == {rows[1]}


@pytest.mark.parametrize("kind", ["the only one", "third", "joined"])
def test_places_cost_no_call(shard: Make, kind: str) -> None:
    """PostgreSQL counts the calls of functions; those that it has inlined are none."""
    db = shard(64, 3) if kind == "third" else shard(1)
    queue = db.queue()
    before = queue.publish_many([("a", n) for n in range(100)])
    if kind == "joined":
        migrate(db.connect(), stride=64)
    worker = Session(db)
    worker.sql("set track_functions = 'all'")
    worker.sql(
        "select headrace.create_queue('default', 'ordered', settings => '{\"order\": \"oldest\"}')"
    )
    ids = worker.publish(300, type="a") + worker.publish(3, type="b", max_retries=0)
    for id in (before[50], ids[50]):
        worker.sql("select headrace.cancel('default', %s)", [id])
    alike = "select headrace.publish_many('default', 'a', (select jsonb_agg(n) from generate_series(1, 300) n))"
    worker.sql(alike)
    worker.finish(worker.poll(100)[1::2])
    worker.finish(worker.poll(100))
    worker.finish(worker.poll(50, each=True), action="fail")
    assert len(worker.poll(50, queue="ordered")) == 50
    for filter in ("{PENDING}", "{COMPLETED}"):
        for types in (None, ["a"]):
            look = "select * from headrace.events('default', statuses => %s, types => %s::text[])"
            worker.sql(look, [filter, types])
    worker.sql("select * from headrace.log_since('default')")
    worker.sql("select * from headrace.event_queue")
    worker.sql("select * from headrace.checkpoint('default')")
    worker.sql("select pg_stat_force_next_flush()")
    worker.sql("select")
    counted = {name for (name,) in worker.sql("select funcname from pg_stat_user_functions")}
    assert {"events", "_record_completed", "_packs_of", "_matching_ready"} - counted == set()
    places = {"place", "_id_at", "_bucket", "_pack", "_first_of_pack", "_last_of_pack"}
    assert counted & places == set()


class TestStayingOne:
    @pytest.fixture
    def third(self, shard: Make) -> Database:
        return shard(64, 3)

    def test_a_later_migration_without_the_options_changes_nothing(self, third: Database) -> None:
        assert migrate(third.connect()) is False
        assert migrate(third.connect(), stride=64, shard=3) is False
        assert migrate(third.connect(), stride=64) is False
        age(third)
        published(third)
        assert migrate(third.connect()) is True
        assert shard_of(third) == (64, 3, 0)
        assert published(third) == [67]
        assert third.sql("select headrace.place(67), headrace._id_at(1)") == [(1, 67)]

    @pytest.mark.parametrize("aged", [False, True])
    @pytest.mark.parametrize("other", [(64, 5), (32, 3), (128, 3), (1, 0)])
    def test_a_shard_never_changes(
        self, third: Database, other: tuple[int, int], aged: bool
    ) -> None:
        if aged:
            age(third)
        stride, shard = other
        with pytest.raises(SchemaMismatch, match="is shard 3 of 64 and cannot become shard"):
            migrate(third.connect(), stride=stride, shard=shard)
        assert shard_of(third) == (64, 3, 0)
        assert published(third) == [3]

    def test_a_database_of_stride_1_becomes_no_other_shard_than_0(self, shard: Make) -> None:
        empty_db = shard(1)
        with pytest.raises(SchemaMismatch, match="shard 0 of 1 and cannot become shard 3 of 64"):
            migrate(empty_db.connect(), stride=64, shard=3)
        assert shard_of(empty_db) == (1, 0, 0)


class TestJoining:
    @pytest.fixture
    def old(self, shard: Make) -> Database:
        return shard(1)

    @pytest.mark.parametrize("stride", [2, 64, 1024])
    @pytest.mark.parametrize("before", [1, 64, 3000])
    def test_a_database_of_stride_1_goes_on_as_shard_0(
        self, old: Database, before: int, stride: int
    ) -> None:
        ids = published(old, before)
        assert ids == list(range(1, before + 1))
        assert migrate(old.connect(), stride=stride) is True
        assert shard_of(old) == (stride, 0, before)
        new = published(old, 3)
        assert new[0] > before
        assert [id % stride for id in new] == [0, 0, 0]
        assert [id - new[0] for id in new] == [0, stride, 2 * stride]
        # The number that tells an import that numbers were drawn is between them.
        places = [
            place
            for (place,) in old.sql(
                "select headrace.place(e.id) from headrace.events e order by e.id"
            )
        ]
        assert places == [*ids, before + 2, before + 3, before + 4]
        assert old.sql(
            "select count(*) from headrace.events e where headrace._id_at(headrace.place(e.id)) <> e.id"
        ) == [(0,)]
        assert migrate(old.connect(), stride=stride) is False
        assert migrate(old.connect(), stride=stride, shard=0) is False

    def test_one_that_has_never_drawn_a_number_becomes_what_a_new_one_is(
        self, old: Database
    ) -> None:
        migrate(old.connect(), stride=64)
        assert shard_of(old) == (64, 0, 0)
        assert published(old, 2) == [64, 128]

    def test_a_session_that_was_there_before_counts_the_new_places(self, old: Database) -> None:
        queue = old.queue(pool_size=1)
        ids = queue.publish_many([("a", n) for n in range(100)])
        for _ in range(3):  # its plans are kept
            queue.complete(queue.poll(max_events=10))
        migrate(old.connect(), stride=64)
        ids = queue.publish_many([("a", n) for n in range(1000)])
        rows = "select count(*), sum(cardinality(pack)) from headrace.ready where event >= %s"
        [(rows_there, packed)] = old.sql(rows, [ids[0]])
        assert rows_there <= 9 + 15, "only the first and the last of them may be too few for a pack"
        assert packed > 900
        while claimed := queue.poll(max_events=500):
            queue.complete(claimed)
        outcomes = "select count(*) from headrace.outcomes where events && %s::bigint[]"
        assert old.sql(outcomes, [ids])[0][0] <= 4
        assert {queue.event(id).status for id in ids[::50]} == {"COMPLETED"}

    def test_a_transaction_that_has_published_is_waited_for(self, old: Database) -> None:
        other = old.connect()
        with other.transaction():
            published(old)
            other.execute("""select headrace.publish('default', '{"type": "b"}')""")
            joining = old.connect()
            run = Background(lambda c: migrate(c, stride=64), joining)
            old.wait_until_blocked(joining)
        assert run.result() is True
        assert shard_of(old) == (64, 0, 2)

    def test_a_transaction_that_stays_open_is_named_and_nothing_is_changed(
        self, old: Database
    ) -> None:
        old.sql("alter function headrace._become_shard set lock_timeout = '50ms'")
        other = old.connect()
        with other.transaction():
            other.execute("""select headrace.publish('default', '{"type": "b"}')""")
            with pytest.raises(Busy, match="stays open"):
                migrate(old.connect(), stride=64)
        assert shard_of(old) == (1, 0, 0)
        assert published(old) == [2]

    def test_a_sequence_that_is_behind_is_refused(self, old: Database) -> None:
        published(old, 10)
        old.sql("select setval('headrace.ids', 3)")
        with pytest.raises(SequenceBehind):
            migrate(old.connect(), stride=64)
        assert shard_of(old) == (1, 0, 0)

    def test_publishers_and_workers_at_work_notice_nothing(self, old: Database) -> None:
        """No number is drawn twice, each after the mark is the shard's, and the log's reader gets every entry in order."""
        work = Work(old)
        with work:
            old.wait_for(lambda: work.read() > 1000)
            assert migrate(old.connect(), stride=64) is True
            some = work.read()
            old.wait_for(lambda: work.read() > some + 1000)
        assert not work.failed
        stride, number, mark = shard_of(old)
        assert (stride, number) == (64, 0)
        every = "select id from headrace.events union all select id from headrace.outcomes"
        drawn = [id for (id,) in old.sql(every)]
        assert len(set(drawn)) == len(drawn)
        assert {id % 64 for id in drawn if id > mark} == {0}
        while work.read() < len(work.published):
            pass
        assert work.told == sorted(work.published)
        assert work.told[0] < mark < work.told[-1]


class Work:
    """Publishers, workers and a reader of the log, in threads of their own until it ends."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.published: list[int] = []
        self.told: list[int] = []
        self.failed: list[BaseException] = []
        self._stop = Event()
        self._threads = [
            *(Thread(target=self._publish, args=[db.queue(), size]) for size in (1, 1, 20, 300)),
            *(Thread(target=self._complete, args=[db.queue()]) for _ in range(2)),
        ]
        self._reader = db.queue()
        self._cursor: Any = 0

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def read(self) -> int:
        """Read on in the log; the number of events that it has told of."""
        assert not self.failed
        page = self._reader.log_since(self._cursor, limit=1000, actions=["EMITTED"])
        self._cursor = page.cursor
        self.told += [entry.event_id for entry in page.entries]
        return len(self.told)

    def _publish(self, queue: headrace.EventQueue, size: int) -> None:
        with self._telling():
            while not self._stop.is_set():
                self.published += queue.publish_many([("a", n) for n in range(size)])

    def _complete(self, queue: headrace.EventQueue) -> None:
        with self._telling():
            while not self._stop.is_set():
                queue.complete(queue.poll(max_events=50))

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.failed.append(error)


class TestContradiction:
    @pytest.mark.parametrize(
        "spoil",
        [
            "alter sequence headrace.ids increment by 1",
            "alter sequence headrace.ids restart with 1000",
            "select setval('headrace.ids', 1000)",
        ],
    )
    def test_a_sequence_of_another_shard_is_refused_and_corrected(
        self, shard: Make, spoil: str
    ) -> None:
        db = shard(64, 3)
        published(db, 5)
        db.sql(spoil)
        with pytest.raises(SequenceBehind, match="this is shard 3 of 64"):
            headrace.connect(db.dsn)
        with pytest.raises(SequenceBehind, match="this is shard 3 of 64"):
            migrate(db.connect())
        found = numbers(db)
        assert (found.state, found.mend) == ("problem", "headrace repair")
        db.sql("select headrace.repair_ids()")
        [id] = published(db)
        assert id % 64 == 3
        assert id > 3 + 4 * 64
        assert published(db) == [id + 64]
        assert migrate(db.connect()) is False
        db.queue()

    def test_functions_of_another_shard_are_refused_and_brought_back(self, shard: Make) -> None:
        db = shard(64, 3)
        db.sql(
            "create or replace function headrace.place(id bigint) returns bigint language sql immutable as 'select id >> 3'"
        )
        with pytest.raises(SequenceBehind, match="place"):
            headrace.connect(db.dsn)
        found = numbers(db)
        assert (found.state, found.mend) == (
            "problem",
            'headrace migrate --sql | psql "$HEADRACE_DSN"',
        )
        db.sql(script())
        found = numbers(db)
        assert found.says == "the sequence is ahead of its tables, and this is shard 3 of 64"
        db.queue()
        assert db.sql("select headrace.place(67)") == [(1,)]


@pytest.mark.parametrize(
    "verb", [one.verb for one in vars(Borrows).values() if isinstance(one, Borrowed)]
)
def test_the_arguments_of_a_verb_are_those_that_its_signature_binds(verb: Any) -> None:
    signature = signature_of(verb)
    wanted = [one for one in list(signature.parameters.values())[1:] if one.default is one.empty]
    some = {one.name: n for n, one in enumerate(wanted) if one.kind not in (2, 4)}
    by_place = [some[one.name] for one in wanted if one.kind is one.POSITIONAL_OR_KEYWORD]
    rest = {name: value for name, value in some.items() if value not in by_place}
    for given, named in (((), some), (tuple(by_place), rest)):
        bound = signature.bind(None, *given, **named)
        bound.apply_defaults()
        assert Use(None, None, verb, given, named).arguments == bound.arguments  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        _ = Use(None, None, verb, (*by_place, *range(99)), {}).arguments  # type: ignore[arg-type]
    if wanted and by_place:
        with pytest.raises(TypeError):
            _ = Use(None, None, verb, (), {}).arguments  # type: ignore[arg-type]
