"""The database of a test: empty at its beginning, with a clock to move, and asked for what was published."""

from datetime import timedelta

import psycopg
import pytest

import headrace
from headrace import EventQueue, HeadraceError, InvalidInput
from headrace.testing import advance, assert_published, published
from headrace.testing.database import Database
from headrace.testing.world import includes


def test_connect_finds_it_by_itself(headrace_queue: EventQueue) -> None:
    with headrace.connect() as queue, headrace.connect(namespace="shop") as shop:
        event = queue.publish("order.paid")
        assert headrace_queue.event(event.id).type == "order.paid"
        shop.publish("order.paid")


@pytest.mark.parametrize("time", ["first", "second"])
def test_nothing_is_left_of_another_test(headrace_queue: EventQueue, time: str) -> None:
    assert published() == []
    assert published(namespace="default") == []
    assert [one.name for one in headrace_queue.namespaces()] == ["default"]
    assert [one.name for one in headrace_queue.queues()] == ["main"]
    headrace_queue.publish("a", delay=5, idempotency_key="k")
    headrace_queue.publish("a", key="k")
    headrace_queue.publish_many([("b", n) for n in range(20)])
    headrace_queue.poll(max_events=3)
    headrace_queue.create_queue("other", after=0)
    headrace_queue.create_namespace("shop")
    headrace_queue.pause()
    advance(days=100)


def test_who_still_holds_something_after_a_test_is_disconnected(
    headrace_database: Database,
) -> None:
    with psycopg.connect(headrace_database.dsn) as forgotten:
        forgotten.execute("select headrace.publish('default', '{}')")
        forgotten.execute("lock headrace.settings")
        headrace_database.empty(patience="10ms")
        with pytest.raises(psycopg.OperationalError):
            forgotten.execute("select")
    assert headrace_database.sql("select count(*) from headrace.events") == [(0,)]


class TestAdvance:
    def test_what_waits_for_its_time_becomes_ready(self, headrace_queue: EventQueue) -> None:
        event = headrace_queue.publish("report", delay=timedelta(hours=3))
        advance(hours=2, minutes=59)
        assert headrace_queue.poll() == []
        advance(minutes=1)
        assert headrace_queue.poll()[0].id == event.id

    def test_leases_end(self, headrace_queue: EventQueue) -> None:
        headrace_queue.publish()
        [claimed] = headrace_queue.poll(lease=60)
        advance(seconds=61)
        assert headrace_queue.event(claimed.id).status == "PENDING"

    def test_schedules_fire(self, headrace_queue: EventQueue) -> None:
        pytest.importorskip("cronsim")
        headrace_queue.schedule_task("nightly", "0 2 * * *", "report")
        advance(days=1)
        assert_published("report", count=1)
        for _ in range(3):
            advance(days=1)
        assert_published("report", count=4)

    def test_time_does_not_run_backwards(self, headrace_queue: EventQueue) -> None:
        with pytest.raises(InvalidInput):
            advance(seconds=-1)


class TestPublished:
    def test_events_come_in_their_order(self, headrace_queue: EventQueue) -> None:
        for type in ("order.created", "mail.sent", "order.paid"):
            headrace_queue.publish(type, {"about": type})
        assert [event.type for event in published()] == ["order.created", "mail.sent", "order.paid"]
        assert [event.payload["about"] for event in published("order.*")] == [
            "order.created",
            "order.paid",
        ]
        assert published("order") == []

    def test_what_nobody_takes_was_published_all_the_same(self, headrace_queue: EventQueue) -> None:
        headrace_queue.change_queue("main", takes=False)
        headrace_queue.publish("a")
        assert len(published()) == 1

    def test_of_another_namespace(self, headrace_queue: EventQueue) -> None:
        with headrace.connect(namespace="shop") as shop:
            shop.publish("a")
        assert published() == []
        assert len(published(namespace="shop")) == 1


class TestAssertPublished:
    def test_a_part_of_the_payload_will_do(self, headrace_queue: EventQueue) -> None:
        headrace_queue.publish("mail", {"to": {"name": "Ada", "age": 36}, "cc": [1, 2], "bcc": None})  # fmt: skip
        for part in (None, {}, {"to": {"name": "Ada"}}, {"cc": [1, 2], "bcc": None}):
            [event] = assert_published("mail", part)
            assert event.payload["cc"] == [1, 2]
        for other in (
            {"to": {"name": "Bob"}},
            {"cc": [1]},
            {"from": None},
            {"to": None},
            "Ada",
            [],
        ):
            with pytest.raises(AssertionError):
                assert_published("mail", other)

    def test_exactly_so_many(self, headrace_queue: EventQueue) -> None:
        headrace_queue.publish_many([("mail", {"n": n % 2}) for n in range(5)])
        assert len(assert_published("mail", count=5)) == 5
        assert len(assert_published("mail", {"n": 0}, count=3)) == 3
        assert assert_published("letter", count=0) == []
        for wrong in (0, 2, 6):
            with pytest.raises(AssertionError):
                assert_published("mail", count=wrong)

    def test_with_tags(self, headrace_queue: EventQueue) -> None:
        headrace_queue.publish("mail", tags=["urgent", "eu"])
        assert_published("mail", tags=["eu"], count=1)
        with pytest.raises(AssertionError):
            assert_published("mail", tags=["eu", "us"])

    def test_the_complaint_tells_what_was_published_instead(
        self, headrace_queue: EventQueue
    ) -> None:
        with pytest.raises(AssertionError, match="expected an event of type mail, but none was"):
            assert_published("mail")
        headrace_queue.publish_many([("letter", {"n": n}) for n in range(30)])
        with pytest.raises(AssertionError) as complained:
            assert_published("mail.*", {"n": 1}, tags=["eu"], count=2)
        said = str(complained.value)
        assert "expected 2 events of type mail.* with {'n': 1} tagged ['eu']" in said
        assert "  letter {'n': 0}\n" in said
        assert "and 10 more" in said


@pytest.mark.parametrize(
    ("whole", "part", "answer"),
    [
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, True),
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}, False),
        ({"a": None}, {"a": None}, True),
        ({"a": 1}, {"a": None}, False),
        ([1, 2], [1, 2], True),
        (5, 5, True),
        ("x", {"x": 1}, False),
    ],
)
def test_a_payload_includes_what_is_named(whole: object, part: object, answer: bool) -> None:
    assert includes(whole, part) is answer


class TestAnotherNamespace:
    @pytest.fixture
    def headrace_namespace(self) -> str:
        return "shop"

    def test_it_is_the_one_of_the_queue_and_of_what_is_asked(
        self, headrace_queue: EventQueue
    ) -> None:
        headrace_queue.publish("a")
        assert_published("a", count=1)
        assert_published("a", namespace="default", count=0)


def test_without_the_fixture_it_says_what_is_missing() -> None:
    with pytest.raises(HeadraceError, match="headrace_queue"):
        published()
