"""Which shard a database is: how it becomes one, and stays it. Its numbers name it, for ever."""

from threading import Event, Thread
from typing import Any

import pytest

import headrace
from headrace.errors import Busy, InvalidInput, SchemaMismatch, SequenceBehind
from headrace.install.migrate import migrate, script
from tests.database import Database
from tests.engine.races_helpers import Background
from tests.engine.test_migrate import age

STRIDES = (1, 8, 64, 1024)


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
        self, empty_db: Database, stride: int
    ) -> None:
        number = stride * 3 // 8
        assert migrate(empty_db.connect(), stride=stride, shard=number) is True
        assert shard_of(empty_db) == (stride, number, 0)
        queue = empty_db.queue()
        ids = queue.publish_many([("a", n) for n in range(300)])
        assert [id - ids[0] for id in ids] == [n * stride for n in range(300)]
        claimed = queue.poll(max_events=100)
        queue.complete(claimed)
        drawn = "select id from headrace.events union all select id from headrace.outcomes"
        numbers = [id for (id,) in empty_db.sql(drawn)] + [one.lease for one in claimed]
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


class TestStayingOne:
    @pytest.fixture
    def third(self, empty_db: Database) -> Database:
        migrate(empty_db.connect(), stride=64, shard=3)
        return empty_db

    def test_a_later_migration_without_the_options_changes_nothing(self, third: Database) -> None:
        assert migrate(third.connect()) is False
        assert migrate(third.connect(), stride=64, shard=3) is False
        assert migrate(third.connect(), stride=64) is False
        age(third)
        published(third)
        assert migrate(third.connect()) is True
        assert shard_of(third) == (64, 3, 0)
        assert published(third) == [67]
        assert third.sql("select headrace._place(67), headrace._id_at(1)") == [(1, 67)]

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

    def test_a_database_of_stride_1_becomes_no_other_shard_than_0(self, empty_db: Database) -> None:
        migrate(empty_db.connect())
        with pytest.raises(SchemaMismatch, match="shard 0 of 1 and cannot become shard 3 of 64"):
            migrate(empty_db.connect(), stride=64, shard=3)
        assert shard_of(empty_db) == (1, 0, 0)


class TestJoining:
    @pytest.fixture
    def old(self, empty_db: Database) -> Database:
        migrate(empty_db.connect())
        return empty_db

    @pytest.mark.parametrize("stride", [2, 8, 64, 1024])
    @pytest.mark.parametrize("before", [1, 63, 64, 65, 3000])
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
                "select headrace._place(e.id) from headrace.events e order by e.id"
            )
        ]
        assert places == [*ids, before + 2, before + 3, before + 4]
        assert old.sql(
            "select count(*) from headrace.events e where headrace._id_at(headrace._place(e.id)) <> e.id"
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
        assert old.sql(rows, [ids[0]]) in ([(8, 1000)], [(9, 1000)])
        while claimed := queue.poll(max_events=500):
            queue.complete(claimed)
        outcomes = "select count(*) from headrace.outcomes where events && %s"
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
        """No number is drawn twice, none after the mark leaves anything, and no entry of the log is skipped."""
        stop = Event()
        seen: list[list[int]] = [[] for _ in range(4)]
        failed: list[BaseException] = []

        def publish(own: list[int], queue: headrace.EventQueue, size: int) -> None:
            try:
                while not stop.is_set():
                    own += queue.publish_many([("a", n) for n in range(size)])
            except BaseException as error:
                failed.append(error)

        def work(queue: headrace.EventQueue) -> None:
            try:
                while not stop.is_set():
                    queue.complete(queue.poll(max_events=50))
            except BaseException as error:
                failed.append(error)

        threads = [
            *(
                Thread(target=publish, args=[own, old.queue(), size])
                for own, size in zip(seen, (1, 1, 20, 300), strict=True)
            ),
            *(Thread(target=work, args=[old.queue()]) for _ in range(2)),
        ]
        reader = old.queue()
        told: list[int] = []
        page = reader.log_since(limit=1000, actions=["EMITTED"])
        for thread in threads:
            thread.start()

        def read() -> None:
            nonlocal page
            page = reader.log_since(page.cursor, limit=1000, actions=["EMITTED"])
            told.extend(entry.event_id for entry in page.entries)

        def so_far() -> int:
            read()
            return sum(map(len, seen))

        try:
            old.wait_for(lambda: so_far() > 2000)
            assert migrate(old.connect(), stride=64) is True
            stride, number, mark = shard_of(old)
            some = so_far()
            old.wait_for(lambda: so_far() > some + 2000 or bool(failed))
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert not failed
        assert (stride, number) == (64, 0)
        drawn: list[Any] = [
            id
            for (id,) in old.sql(
                "select id from headrace.events union all select id from headrace.outcomes"
            )
        ]
        assert len(set(drawn)) == len(drawn)
        assert {id % 64 for id in drawn if id > mark} == {0}
        ids = sorted(id for own in seen for id in own)
        assert any(id > mark for id in ids)
        assert any(id <= mark for id in ids)
        while len(told) < len(ids):
            before = len(told)
            read()
            assert len(told) > before
        assert told == ids


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
        self, empty_db: Database, spoil: str
    ) -> None:
        migrate(empty_db.connect(), stride=64, shard=3)
        published(empty_db, 5)
        empty_db.sql(spoil)
        with pytest.raises(SequenceBehind, match="this is shard 3 of 64"):
            headrace.connect(empty_db.dsn)
        with pytest.raises(SequenceBehind, match="this is shard 3 of 64"):
            migrate(empty_db.connect())
        empty_db.sql("select headrace.repair_ids()")
        [id] = published(empty_db)
        assert id % 64 == 3
        assert id > 3 + 4 * 64
        assert published(empty_db) == [id + 64]
        assert migrate(empty_db.connect()) is False
        empty_db.queue()

    def test_functions_of_another_shard_are_refused_and_brought_back(
        self, empty_db: Database
    ) -> None:
        migrate(empty_db.connect(), stride=64, shard=3)
        empty_db.sql(
            "create or replace function headrace._place(id bigint) returns bigint language sql immutable as 'select id >> 3'"
        )
        with pytest.raises(SequenceBehind, match="_place"):
            headrace.connect(empty_db.dsn)
        empty_db.sql(script())
        empty_db.queue()
        assert empty_db.sql("select headrace._place(67)") == [(1,)]
