"""Packs: deliveries that were published together wait as one row of ready, and nobody can tell."""

import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.database import Database
from tests.engine.functions_helpers import Engine, refused
from tests.engine.races_helpers import Background, Session
from tests.places import check_places
from tests.requirements import requirement


@pytest.fixture
def session(db: Database) -> Session:
    return Session(db)


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


@pytest.fixture(autouse=True)
def _everything_is_in_its_place(db: Database) -> Iterator[None]:
    yield
    check_places(db.sql)


def ids(claims: list[Any]) -> list[int]:
    return [claim.id for claim in claims]


def begin_a_bucket(db: Database, before: int = 0) -> None:
    """The next id but `before` is the first of a bucket of 128."""
    db.sql(
        "select setval('headrace.ids', headrace._id_at((headrace.place(last_value) / 128 + 2) * 128 - 1 - %s))"
        " from headrace.ids",
        [before],
    )


def packs(db: Database) -> list[int]:
    """The sizes of the rows of ready, in the order of the claim."""
    return [
        size
        for (size,) in db.sql(
            "select coalesce(cardinality(pack), 1) from headrace.ready order by priority, seq"
        )
    ]


def publish_alike(session: Session, count: int, **header: Any) -> list[int]:
    group = {**header, "payloads": list(range(count))}
    [(published,)] = session.sql(
        "select ids from headrace.publish('default', %s)", [Jsonb([group])]
    )
    return published


WAYS = pytest.mark.parametrize(
    "publish", [Session.publish, publish_alike], ids=["one by one", "as a group"]
)


class TestMaking:
    @WAYS
    def test_sixteen_are_a_pack_and_fifteen_are_none(
        self, session: Session, db: Database, publish: Any
    ) -> None:
        begin_a_bucket(db)
        publish(session, 15)
        assert packs(db) == [1] * 15
        begin_a_bucket(db)
        publish(session, 16)
        assert packs(db) == [1] * 15 + [16]

    @WAYS
    def test_a_pack_ends_with_its_bucket(
        self, session: Session, db: Database, publish: Any
    ) -> None:
        begin_a_bucket(db, before=20)
        publish(session, 20 + 128 + 10)
        assert packs(db) == [20, 128] + [1] * 10

    def test_a_pack_is_of_one_type_and_priority(self, engine: Engine, db: Database) -> None:
        begin_a_bucket(db)
        engine.publish(*[{"type": f"t{n % 3}", "priority": n % 2} for n in range(120)])
        assert packs(db) == [20] * 6

    @pytest.mark.parametrize("alike", [False, True])
    def test_its_members_are_in_order_whatever_the_planner_does(
        self, session: Session, db: Database, alike: bool
    ) -> None:
        session.sql("set enable_hashagg = off")
        session.sql("set enable_hashjoin = off")
        types = [random.randrange(5) for _ in range(1000)]
        events: list[Any] = [{"type": f"t{type}", "payload": n} for n, type in enumerate(types)]
        if alike:
            events = [{"payloads": [*range(1000)]}]
        [(published,)] = session.sql(
            "select ids from headrace.publish('default', %s)", [Jsonb(events)]
        )
        assert published == sorted(published)
        assert db.sql("select payload::int from headrace.events order by id") == [
            (n,) for n in range(1000)
        ]
        check_places(db.sql)

    def test_what_is_delayed_or_has_a_key_is_in_none(self, session: Session, db: Database) -> None:
        session.publish(20, delay=10)
        session.publish(20, key="k")
        assert packs(db) == [1]  # a token


@requirement("G4", "G5")
class TestClaiming:
    @pytest.mark.parametrize("hinted", [False, True])
    def test_every_size_drains_all_in_order(
        self, session: Session, db: Database, hinted: bool
    ) -> None:
        for n in [*range(1, 24), 31, 64, 100, 127, 128, 129, 200, 1000]:
            published = session.publish(random.randrange(100, 400))
            claimed: list[int] = []
            hints = None
            while claims := session.poll(n, hints=hints):
                assert len(claims) <= n
                claimed += ids(claims)
                hints = claims[0].hints if hinted else None
            assert claimed == published, n
        check_places(db.sql)

    def test_random_sizes_drain_what_publishers_interleaved(self, db: Database) -> None:
        def publish(n: int) -> list[int]:
            session = Session(db)
            published: list[int] = []
            for _ in range(15):
                session.begin()
                for _ in range(2):
                    published += session.publish(random.randrange(1, 60), type=f"t{n % 2}")
                session.commit()
            return published

        publishers = [Background(publish, n) for n in range(4)]
        published = [id for one in publishers for id in one.result()]
        check_places(db.sql)
        worker = Session(db)
        claimed: list[int] = []
        while claims := worker.poll(random.randrange(1, 200)):
            claimed += ids(claims)
        assert sorted(claimed) == sorted(published)

    def test_what_is_left_of_an_opened_pack_is_in_packs_of_the_size_asked_for(
        self, session: Session, db: Database
    ) -> None:
        begin_a_bucket(db)
        published = session.publish(100)
        assert ids(session.poll(30)) == published[:30]
        assert packs(db) == [30, 30, 10]
        assert ids(session.poll(7)) == published[30:37]
        assert packs(db) == [7, 7, 7, 2, 30, 10]

    def test_a_claim_that_is_rolled_back_leaves_the_pack_whole(
        self, session: Session, db: Database
    ) -> None:
        begin_a_bucket(db)
        published = session.publish(100)
        session.begin()
        session.poll(10)
        session.rollback()
        assert packs(db) == [100]
        assert ids(session.poll(100)) == published

    def test_who_meets_a_pack_that_is_being_opened_gets_what_is_left(self, db: Database) -> None:
        one, two = Session(db), Session(db)
        published = one.publish(100)
        one.begin()
        first = one.poll(10)
        waiting = Background(two.poll, 10)
        one.commit()
        second = waiting.result() or two.poll(10)
        assert ids(first) + ids(second) == published[:20]

    def test_nobody_waits_long_for_who_never_commits(self, db: Database) -> None:
        one, two = Session(db), Session(db).hurry()
        one.publish(100)
        one.begin()
        one.poll(10)
        assert two.poll(10) == []
        one.rollback()
        assert len(two.poll(10)) == 10

    @pytest.mark.parametrize("n", [1, 7, 100])
    def test_many_at_once_get_each_once(self, db: Database, n: int) -> None:
        publisher = Session(db)
        published = [id for _ in range(5) for id in publisher.publish(200)]

        def work() -> list[int]:
            session = Session(db)
            claimed: list[int] = []
            while claims := session.poll(n):
                claimed += ids(claims)
            return claimed

        workers = [Background(work) for _ in range(4)]
        claimed = [id for worker in workers for id in worker.result()]
        while claims := publisher.poll(n):  # who napped in vain went home
            claimed += ids(claims)
        assert sorted(claimed) == published

    def test_the_most_urgent_come_first_and_types_share(self, session: Session) -> None:
        session.publish(100, type="slow", priority=9)
        for type in "abcd":
            session.publish(100, type=type)
        [urgent] = session.publish(priority=0)
        claims = session.poll(101)
        assert claims[0].id == urgent
        assert Counter(claim.type for claim in claims[1:]) == dict.fromkeys("abcd", 25)

    def test_held_one_by_one(self, session: Session, db: Database) -> None:
        published = session.publish(40)
        claims = session.poll(20, each=True)
        assert ids(claims) == published[:20]
        session.finish(claims[:5])
        check_places(db.sql)
        assert session.finish(claims[5:]) == ["counted"] * 15

    @requirement("G9")
    def test_a_lost_batch_comes_back_one_by_one_as_suspects(
        self, session: Session, db: Database
    ) -> None:
        published = session.publish(40)
        session.poll(20)
        db.advance(minutes=2)
        session.tick()
        check_places(db.sql)
        rest = session.poll(100)
        assert ids(rest) == published[20:]
        session.finish(rest)
        suspects: list[int] = []
        while claims := session.poll(100):
            assert len(claims) == 1
            suspects += ids(claims)
            session.finish(claims)
        assert sorted(suspects) == published[:20]

    def test_a_batch_in_which_each_ends_otherwise(self, session: Session, db: Database) -> None:
        session.publish(60)
        claims = session.poll(60)
        session.finish(claims[:20])
        session.finish(claims[20:40], action="release")
        session.finish(claims[40:], action="fail", retry_in=0)
        check_places(db.sql)
        assert ids(session.poll(100)) == ids(claims[20:])

    def test_under_a_held_snapshot_hints_lead_past_what_is_dead(
        self, session: Session, db: Database
    ) -> None:
        reader = Session(db)
        reader.begin("repeatable read")
        reader.sql("select count(*) from headrace.ready")
        published = session.publish(1000) + session.publish(1000)
        claimed: list[int] = []
        hints = None
        while claims := session.poll(50, hints=hints):
            claimed += ids(claims)
            hints = claims[0].hints
            db.advance(seconds=1)
        assert claimed == published
        reader.rollback()


class TestMembers:
    """Whoever looks at one member, or takes it out, need not know of the pack."""

    @pytest.fixture
    def published(self, session: Session, db: Database) -> list[int]:
        begin_a_bucket(db)
        return session.publish(40, type="packed")

    @pytest.mark.parametrize("place", [0, 1, 20, 39])
    def test_it_is_seen(
        self, engine: Engine, db: Database, published: list[int], place: int
    ) -> None:
        id = published[place]
        event = engine.event(id)
        assert (event.status, event.attempts, event.type) == ("PENDING", 0, "packed")
        assert db.sql("select status from headrace.event_queue where id = %s", [id]) == [
            ("PENDING",)
        ]
        assert [
            row.status for row in engine.call("deliveries", namespace="default", event_id=id)
        ] == ["PENDING"]

    def test_all_are_counted(self, engine: Engine, db: Database, published: list[int]) -> None:
        [(queue,)] = db.sql("select queue from headrace.ready")
        assert engine.stats().ready == 40
        assert db.sql(
            "select headrace._depth(%s, 1000), headrace._depth(%s, 7)", [queue, queue]
        ) == [(40, 7)]
        [count] = engine.call("count_events", namespace="default", statuses=["PENDING"])
        assert count.total == 40
        listed = engine.call("events", namespace="default", statuses=["PENDING"], limit=25)
        assert [event.id for event in listed] == published[:14:-1]

    @pytest.mark.parametrize("place", [0, 1, 20, 39])
    def test_one_is_cancelled_and_the_pack_goes_on_without_it(
        self, session: Session, db: Database, published: list[int], place: int
    ) -> None:
        id = published.pop(place)
        assert session.sql("select headrace.cancel('default', %s)", [id]) == [(True,)]
        assert packs(db) == [39]
        check_places(db.sql)
        assert ids(session.poll(100)) == published

    def test_all_are_cancelled_one_after_the_other(
        self, session: Session, db: Database, published: list[int]
    ) -> None:
        for id in random.sample(published, 40):
            session.sql("select headrace.cancel('default', %s)", [id])
            check_places(db.sql)
        assert packs(db) == []

    def test_a_reset_leaves_it_where_it_is(
        self, session: Session, db: Database, published: list[int]
    ) -> None:
        assert session.sql("select headrace.reset('default', %s)", [published[5]]) == [(False,)]
        assert packs(db) == [40]

    def test_one_is_erased(self, session: Session, db: Database, published: list[int]) -> None:
        session.sql("select headrace.erase('default', %s)", [published[5]])
        assert [claim.payload for claim in session.poll(100)] == [{}] * 39

    @pytest.mark.patient
    def test_a_cancel_waits_for_who_opens_the_pack_and_finds_it_in_the_rest(
        self, session: Session, db: Database, published: list[int]
    ) -> None:
        other = Session(db)
        other.begin()
        other.poll(10)
        waiting = Background(session.sql, "select headrace.cancel('default', %s)", [published[30]])
        db.wait_until_blocked(session.connection)
        other.commit()
        assert waiting.result() == [(True,)]

    def test_a_claim_passes_by_who_cancels_and_finds_the_rest_later(
        self, session: Session, db: Database, published: list[int]
    ) -> None:
        other = Session(db)
        other.begin()
        other.sql("select headrace.cancel('default', %s)", [published[0]])
        assert session.poll(10) == []
        other.commit()
        assert ids(session.poll(100)) == published[1:]

    def test_a_purge_takes_packs_whole(
        self, engine: Engine, db: Database, published: list[int]
    ) -> None:
        engine.publish(*[{"type": "other"}] * 20)
        [step] = engine.call(
            "purge", namespace="default", queue="main", what="ready", types=["packed"], most=10
        )
        assert step.done == 40
        assert len(engine.poll(100)) == 20

    def test_a_body_that_was_deleted_is_dead_lettered_alone(
        self, session: Session, db: Database, published: list[int]
    ) -> None:
        db.sql("delete from headrace.events where id = %s", [published[7]])
        claimed = session.poll(100)
        assert ids(claimed) == published[:7] + published[8:]
        assert db.sql("select event from headrace.dead_letters") == [(published[7],)]
        session.finish(claimed)

    def test_what_lives_in_a_retired_month_is_carried_over(
        self, session: Session, db: Database, published: list[int]
    ) -> None:
        session.poll(10)
        db.sql("insert into headrace.events_carried select * from headrace.events")
        db.sql("delete from headrace.events")
        assert ids(session.poll(100)) == published[10:]
        assert session.sql("select count(*) from headrace._unfinished_events()") == [(40,)]


class TestGroups:
    """`payloads`: events that have all else in common."""

    HEADERS = (
        {},
        {"type": "t", "tags": ["b", "a"], "priority": 3},
        {"type": "t", "delay": 60, "max_retries": 7},
        {"type": "t", "key": "k", "title": "x", "correlation_id": "c"},
    )

    @staticmethod
    def stored(db: Database) -> list[Any]:
        """Everything that was stored, but for ids and times."""
        return [
            db.sql(
                "select route, version, priority, max_retries, type, tags, payload, details, key from headrace.events order by id"
            ),
            db.sql(
                "select route, priority, attempts, key, cardinality(pack) from headrace.ready order by seq"
            ),
            db.sql(
                "select route, priority, due_at - created_at, key from headrace.delayed order by event"
            ),
            db.sql("select key, route, priority from headrace.keyed order by event"),
            db.sql("select sum(published) from headrace.counts"),
        ]

    @staticmethod
    def wipe(db: Database) -> None:
        for table in ("events", "ready", "delayed", "keyed", "counts"):
            db.sql(f"delete from headrace.{table}")
        begin_a_bucket(db)

    @pytest.mark.parametrize("count", [1, 15, 16, 200])
    @pytest.mark.parametrize("header", HEADERS, ids=str)
    def test_they_are_stored_as_one_by_one(
        self, session: Session, db: Database, header: dict[str, Any], count: int
    ) -> None:
        payloads = [{"n": n} if n % 3 else None for n in range(count)]
        one_by_one = [{**header, "payload": payload} for payload in payloads]
        group = {**header, "payloads": payloads}
        results = []
        for events in (
            one_by_one,
            [group],
            [group, {"type": "last"}],
            [*one_by_one, {"type": "last"}],
        ):
            self.wipe(db)
            [(published,)] = session.sql(
                "select ids from headrace.publish('default', %s)", [Jsonb(events)]
            )
            assert published == sorted(published)
            results.append(self.stored(db))
        assert results[0] == results[1]
        assert results[2] == results[3]

    def test_a_group_may_stand_among_others(self, engine: Engine, db: Database) -> None:
        published = engine.publish(
            {"payload": 0},
            {"payloads": [1, 2]},
            {"payloads": []},
            {"payload": 3},
            {"payloads": [4]},
        )
        assert len(published) == 5
        assert db.sql("select payload from headrace.events order by id") == [(n,) for n in range(5)]

    def test_no_payloads_are_no_events(self, engine: Engine, db: Database) -> None:
        assert engine.publish({"payloads": []}) == []
        assert engine.publish({"payloads": []}, {"payloads": []}) == []

    @pytest.mark.parametrize(
        "events",
        [
            [{"payloads": [1], "payload": 1}],
            [{"payloads": {"a": 1}}],
            [{"payloads": "x"}],
            [{"payloads": None}],
            [{"type": "fine"}, {"payloads": None}],
        ],
        ids=str,
    )
    def test_what_is_no_group_is_refused(
        self, engine: Engine, db: Database, events: list[Any]
    ) -> None:
        with refused("QU001", match="payloads is an array"):
            engine.publish(*events)
        assert db.sql("select count(*) from headrace.events") == [(0,)]

    @pytest.mark.parametrize(
        "before", [[], [{"payload": 0}, {"payloads": [1, 2]}]], ids=["alone", "among others"]
    )
    def test_a_wrong_payload_is_named_by_its_place(self, engine: Engine, before: list[Any]) -> None:
        place = 3 * bool(before) + 2
        text = json.dumps([*before, {"payloads": [1, "WRONG", 3]}]).replace(
            '"WRONG"', '{"a": 1e400}'
        )
        with refused("QU002") as caught:
            engine.publish_json(text)
        assert caught.value.diag.message_detail == f"event {place} of the batch"

    def test_a_wrong_header_is_named_by_its_first_event(self, engine: Engine) -> None:
        with refused("QU001") as caught:
            engine.publish({"payload": 0}, {"payloads": [1, 2]}, {"payloads": [3], "priority": 77})
        assert caught.value.diag.message_detail == "event 4 of the batch"


@pytest.mark.parametrize("missing", [set(), {130}, {1, 128, 255}, set(range(120, 140))])
def test_ids_are_cut_where_buckets_begin_with_or_without_gaps(
    db: Database, missing: set[int]
) -> None:
    places = [place for place in range(100, 300) if place not in missing]
    [(ids,)] = db.sql(
        "select array(select headrace._id_at(p) from unnest(%s::bigint[]) p)", [places]
    )
    cut = db.sql(
        "select array(select headrace.place(id) from unnest(b) id) from headrace._packs_of(%s::bigint[]) b",
        [ids],
    )
    assert sorted(pack for (pack,) in cut) == [
        [place for place in places if place >> 7 == bucket]
        for bucket in range(100 >> 7, (299 >> 7) + 1)
    ]
