"""Debounce: an event supersedes the one of its key that waits, and is due when it has become quiet, or at the latest."""

import json
from datetime import timedelta
from typing import Any

import pytest

from tests.database import Database
from tests.engine.functions_helpers import Engine, contents, differences, refused, stop_the_clock
from tests.engine.races_helpers import Background, Session
from tests.places import check_places
from tests.requirements import requirement

KEY = {"debounce": "k", "settle": 2, "at_latest": 10}


@pytest.fixture
def engine(db: Database) -> Engine:
    stop_the_clock(db)
    return Engine(db)


def publish(engine: Engine, *events: Any) -> Any:
    [answer] = engine.call("publish", namespace=engine.namespace, events=json.dumps(events))
    return answer


def debounced(engine: Engine, **fields: Any) -> int:
    """The id of a debounced event that is published now."""
    answer = publish(engine, {**KEY, **fields})
    assert answer.repeated is None
    return answer.ids[0]


def due_in(engine: Engine, id: int) -> float | None:
    at = engine.event(id).next_retry_at
    return None if at is None else (at - engine.now()).total_seconds()


def began(engine: Engine) -> list[int]:
    """What can be claimed now."""
    return [claim.id for claim in engine.poll(max_events=100)]


def test_a_debounced_event_is_due_when_it_has_been_quiet(engine: Engine, db: Database) -> None:
    id = debounced(engine)
    assert due_in(engine, id) == 2
    assert began(engine) == []
    db.advance(seconds=2)
    assert began(engine) == [id]


@requirement("G26")
def test_the_next_one_supersedes_it_and_the_log_says_so(engine: Engine, db: Database) -> None:
    first = debounced(engine, payload=1)
    db.advance(seconds=1)
    second = debounced(engine, payload=2)

    assert due_in(engine, second) == 2
    stood = engine.event(first)
    assert (stood.status, stood.superseded_by) == ("CANCELLED", second)
    assert (stood.attempts, stood.next_retry_at) == (0, None)
    assert [(one.action, one.superseded_by) for one in engine.trail(first)] == [
        ("EMITTED", None),
        ("SUPERSEDED", second),
    ]
    told = engine.call("log_since", namespace="default", actions=["SUPERSEDED"])
    assert [(one.event_id, one.superseded_by) for one in told if one.action] == [(first, second)]
    [delivery] = engine.call("deliveries", namespace="default", event_id=first)
    assert (delivery.status, delivery.superseded_by) == ("CANCELLED", second)
    db.advance(seconds=2)
    claim = engine.claim()
    assert (claim.id, claim.payload, claim.attempt) == (second, 2, 1)
    assert engine.event(second).superseded_by is None
    check_places(db.sql)


@requirement("G26")
def test_it_is_due_at_the_latest_after_the_first_of_them(engine: Engine, db: Database) -> None:
    due = []
    for _ in range(12):
        id = debounced(engine)
        due.append(due_in(engine, id))
        db.advance(seconds=1)
    # published every second, each due after two, the last of them ten seconds after the first
    assert due == [2, 2, 2, 2, 2, 2, 2, 2, 2, 1, None, None]
    assert began(engine) == [id]


def test_without_a_latest_it_waits_as_long_as_there_are_more(engine: Engine, db: Database) -> None:
    for _ in range(30):
        id = publish(engine, {"debounce": "k", "settle": 2}).ids[0]
        db.advance(seconds=1)
    assert due_in(engine, id) == 1


def test_a_latest_counts_from_the_first_that_has_not_begun(engine: Engine, db: Database) -> None:
    debounced(engine)
    db.advance(seconds=2)
    engine.claim()
    db.advance(seconds=7)
    id = debounced(engine)
    assert due_in(engine, id) == 2
    db.advance(seconds=1)
    assert due_in(engine, debounced(engine)) == 2


@pytest.mark.parametrize(
    "state", ["in progress", "held", "waits for its retry", "released", "snoozed"]
)
@requirement("G26")
def test_a_delivery_that_has_begun_is_not_touched(engine: Engine, db: Database, state: str) -> None:
    first = debounced(engine, backoff={"kind": "fixed", "delay": 60})
    db.advance(seconds=2)
    claim = engine.claim(each=state == "held")
    ends = {
        "waits for its retry": {"action": "fail"},
        "released": {"action": "release"},
        "snoozed": {"action": "release", "delay": 60},
    }
    if state in ends:
        engine.finish([claim], {"1": ends[state]})
    before = engine.event(first)
    second = debounced(engine)
    after = engine.event(first)
    assert (after.status, after.attempts, after.next_retry_at) == (
        *(before.status, before.attempts, before.next_retry_at),
    )
    assert "SUPERSEDED" not in engine.actions(first)
    assert due_in(engine, second) == 2
    if state in ("in progress", "held"):
        engine.end("complete", claim)
        assert engine.event(first).status == "COMPLETED"


@pytest.mark.parametrize("end", ["complete", "cancel"])
def test_one_that_has_ended_begins_a_new_row(engine: Engine, db: Database, end: str) -> None:
    first = debounced(engine)
    db.advance(seconds=9)
    if end == "cancel":
        engine.call("cancel", namespace="default", event_id=first)
    else:
        engine.end("complete", engine.claim())
    second = debounced(engine)
    assert due_in(engine, second) == 2
    assert "SUPERSEDED" not in engine.actions(first)


@pytest.mark.parametrize("key", [None, "ordered"])
def test_one_that_is_ready_is_superseded_too(engine: Engine, db: Database, key: str | None) -> None:
    fields = {} if key is None else {"key": key}
    first = debounced(engine, **fields)
    db.advance(seconds=3)
    engine.tick()
    assert db.placement()[first] == ["keyed" if key else "ready"]
    second = debounced(engine, **fields)
    assert engine.event(first).superseded_by == second
    assert due_in(engine, second) == 2
    db.advance(seconds=2)
    assert began(engine) == [second]
    check_places(db.sql)


@pytest.mark.parametrize("key", [None, "ordered"])
def test_one_that_is_overdue_takes_the_place_in_the_queue(
    engine: Engine, db: Database, key: str | None
) -> None:
    fields = {} if key is None else {"key": key}
    debounced(engine, **fields)
    db.advance(seconds=10)
    engine.tick()
    others = engine.publish(*[{}] * 3)
    for _ in range(3):
        last = debounced(engine, **fields)
        assert due_in(engine, last) is None
        others += engine.publish({})
    claims = engine.poll(max_events=1)
    assert [claim.id for claim in claims] == [last]
    check_places(db.sql)


def test_the_next_of_an_ordering_key_follows_a_superseded_one(engine: Engine, db: Database) -> None:
    debounced(engine, key="ordered")
    db.advance(seconds=3)
    engine.tick()
    [other] = engine.publish({"key": "ordered"})
    debounced(engine, key="ordered")
    assert began(engine) == [other]


def test_keys_are_of_their_namespace_and_apart(engine: Engine, db: Database) -> None:
    engine.call("create_namespace", namespace="else")
    first = debounced(engine)
    debounced(engine, debounce="another")
    debounced(Engine(db, "else"))
    assert engine.event(first).status == "PENDING"


def test_a_type_does_not_matter(engine: Engine) -> None:
    first = debounced(engine, type="a", tags=["x"], priority=1)
    second = debounced(engine, type="b")
    assert engine.event(first).superseded_by == second


class TestQueues:
    """Superseding is per delivery."""

    @pytest.fixture(autouse=True)
    def other(self, engine: Engine) -> None:
        engine.call("create_queue", namespace="default", queue="other", types=["a"])

    def status(self, engine: Engine, id: int) -> dict[str, tuple[str, int | None]]:
        rows = engine.call("deliveries", namespace="default", event_id=id)
        return {row.queue: (row.status, row.superseded_by) for row in rows}

    def test_each_queue_supersedes_what_waits_in_it(self, engine: Engine, db: Database) -> None:
        first = debounced(engine, type="a")
        db.advance(seconds=2)
        engine.claim(queue="main")
        second = debounced(engine, type="a")
        assert self.status(engine, first) == {
            "main": ("PROCESSING", None),
            "other": ("CANCELLED", second),
        }

    def test_a_queue_that_does_not_take_the_next_one_keeps_the_first(self, engine: Engine) -> None:
        first = debounced(engine, type="a")
        second = debounced(engine, type="b")
        assert self.status(engine, first) == {
            "main": ("CANCELLED", second),
            "other": ("PENDING", None),
        }

    def test_the_latest_is_that_of_each_queue(self, engine: Engine, db: Database) -> None:
        engine.call("pause", namespace="default", queue="other")
        for _ in range(4):
            debounced(engine, type="a")
            db.advance(seconds=3)
            engine.end("complete", engine.claim())
        id = debounced(engine, type="a")
        rows = engine.call("deliveries", namespace="default", event_id=id)
        due = {row.queue: row.next_retry_at and row.next_retry_at - engine.now() for row in rows}
        assert due == {"main": timedelta(seconds=2), "other": None}


def test_in_a_batch_the_last_one_of_a_key_stays(engine: Engine, db: Database) -> None:
    before = debounced(engine)
    ids = publish(engine, KEY, {}, {**KEY, "debounce": "l"}, KEY, KEY).ids
    assert [engine.event(id).superseded_by for id in (before, *ids)] == [
        *(ids[0], ids[3], None, None, ids[4], None),
    ]
    assert began(engine) == [ids[1]]
    db.advance(seconds=2)
    assert sorted(began(engine)) == [ids[2], ids[4]]
    check_places(db.sql)


@requirement("G2")
def test_a_repeated_idempotency_key_supersedes_nothing(engine: Engine, db: Database) -> None:
    first = publish(engine, {**KEY, "idempotency_key": "i"})
    second = debounced(engine)
    before = contents(db)
    again = publish(engine, {**KEY, "idempotency_key": "i"})
    assert (again.ids, again.repeated) == (first.ids, [1])
    assert differences(before, contents(db)) == set()
    assert engine.event(second).status == "PENDING"


@pytest.mark.parametrize(
    ("first", "then"), [({}, {"key": "o"}), ({"key": "o"}, {}), ({"key": "o"}, {"key": "p"})]
)
def test_another_ordering_key_than_that_of_the_waiting_one_is_refused(
    engine: Engine, db: Database, first: dict[str, Any], then: dict[str, Any]
) -> None:
    debounced(engine, **first)
    before = contents(db)
    with refused("QU001", "has the ordering key of the one that it supersedes") as caught:
        publish(engine, {}, {**KEY, **then})
    assert caught.value.diag.message_detail == "event 2 of the batch"
    assert differences(before, contents(db)) == set()
    db.advance(seconds=2)
    engine.claim()
    debounced(engine, **then)  # nothing of the key waits


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"debounce": ""}, "debounce key"),
        ({"debounce": "x" * 201}, "debounce key"),
        ({"debounce": 1}, "debounce key"),
        ({"settle": None}, "settle"),
        ({"settle": 0}, "settle"),
        ({"settle": -1}, "settle"),
        ({"settle": "2"}, "settle"),
        ({"settle": [2]}, "settle"),
        ({"settle": 315_360_001, "at_latest": 315_360_000}, "settle"),
        ({"settle": 1e300}, "settle"),
        ({"at_latest": 0}, "at_latest"),
        ({"at_latest": -5}, "at_latest"),
        ({"at_latest": 315_360_001}, "at_latest"),
        ({"at_latest": "10"}, "at_latest"),
        ({"at_latest": 1}, "not shorter than its settle"),
        ({"delay": 5}, "no delay or time of its own"),
        ({"at": "2030-01-01T00:00:00Z"}, "no delay or time of its own"),
        ({"unique": "u"}, "a unique key or a debounce key, not both"),
        ({"payload": None, "payloads": [1]}, "instead of the payload"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_and_nothing_stored(
    engine: Engine, db: Database, event: dict[str, Any], said: str
) -> None:
    waiting = debounced(engine)
    before = contents(db)
    with refused("QU001", said):
        publish(engine, {}, {**KEY, **event})
    assert differences(before, contents(db)) == set()
    assert engine.event(waiting).status == "PENDING"


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"settle": 1}, "settle and at_latest are for an event with a debounce key"),
        ({"at_latest": 1}, "settle and at_latest are for an event with a debounce key"),
        ({"debounce": "k"}, "has a settle"),
        ({"debounce": "k", "at_latest": 5}, "has a settle"),
        ({"debounce": "k", "settle": 1, "payloads": [1, 2]}, "payloads"),
    ],
    ids=str,
)
def test_a_half_told_debounce_is_refused(
    engine: Engine, db: Database, event: dict[str, Any], said: str
) -> None:
    before = contents(db)
    with refused("QU001", said):
        publish(engine, event)
    assert differences(before, contents(db)) == set()


def test_a_superseded_event_is_among_the_cancelled_ones_and_can_be_run_again(
    engine: Engine, db: Database
) -> None:
    first, second = debounced(engine), debounced(engine)
    found = engine.call("events", namespace="default", statuses=["CANCELLED"])
    assert [one.id for one in found] == [first]
    assert engine.call("count_events", namespace="default", statuses=["CANCELLED"])[0].total == 1
    assert not engine.call("cancel", namespace="default", event_id=first)[0][0]
    with refused("QU024", "CANCELLED"):
        engine.call("reset", namespace="default", event_id=first)
    engine.call("rerun", namespace="default", event_id=first)
    assert (engine.event(first).status, engine.event(first).superseded_by) == ("PENDING", None)
    assert engine.call("count_events", namespace="default", statuses=["CANCELLED"])[0].total == 0
    assert began(engine) == [first]
    assert second


def test_the_event_says_its_key(db: Database) -> None:
    queue = db.queue()
    one = queue.publish("a", debounce="k", settle=60)
    assert (one.debounce, one.status, one.next_retry_at) == ("k", "PENDING", None)
    [two] = queue.publish_many([{"debounce": "k", "settle": timedelta(minutes=1)}])
    assert queue.event(one.id).superseded_by == two
    assert queue.event(two).debounce == "k"
    assert [entry.superseded_by for entry in queue.log(one.id)] == [None, two]


class TestRaces:
    """Two connections, and one key."""

    PUBLISH = "select ids from headrace.publish('default', %s)"
    EVENT = (json.dumps(KEY),)

    @pytest.mark.parametrize("ending", ["commit", "rollback"])
    def test_a_publisher_waits_for_one_of_the_same_key_and_supersedes_what_it_left(
        self, db: Database, engine: Engine, ending: str
    ) -> None:
        one, other = Session(db), Session(db)
        one.begin()
        [(first,)] = one.sql(self.PUBLISH, self.EVENT)
        waiting = Background(other.sql, self.PUBLISH, self.EVENT)
        db.wait_until_blocked(other.connection)
        getattr(one, ending)()
        [((second,),)] = waiting.result()
        assert list(db.placement())[-1] == second
        assert db.placement()[second] == ["delayed"]
        if ending == "commit":
            assert engine.event(first[0]).superseded_by == second

    def test_a_publisher_of_another_key_does_not_wait(self, db: Database) -> None:
        one, other = Session(db), Session(db).hurry()
        one.begin()
        one.sql(self.PUBLISH, self.EVENT)
        other.sql(self.PUBLISH, [json.dumps({**KEY, "debounce": "l"})])

    @pytest.mark.parametrize("each", [False, True])
    @pytest.mark.parametrize("ending", ["commit", "rollback"])
    def test_a_publisher_does_not_wait_for_a_claim_and_leaves_it_its_event(
        self, db: Database, engine: Engine, ending: str, each: bool
    ) -> None:
        first = debounced(engine)
        db.advance(seconds=2)
        engine.tick()
        worker, publisher = Session(db), Session(db).hurry()
        worker.begin()
        assert [claim.id for claim in worker.poll(each=each)] == [first]
        [((second,),)] = publisher.sql(self.PUBLISH, self.EVENT)
        getattr(worker, ending)()
        assert engine.event(first).superseded_by is None
        assert due_in(engine, second) == 2
        check_places(db.sql)

    def test_a_claim_does_not_wait_for_a_publisher_and_gets_nothing_superseded(
        self, db: Database, engine: Engine
    ) -> None:
        first = debounced(engine)
        db.advance(seconds=2)
        engine.tick()
        worker, publisher = Session(db).hurry(), Session(db)
        publisher.begin()
        publisher.sql(self.PUBLISH, self.EVENT)
        assert worker.poll() == []
        publisher.rollback()
        assert [claim.id for claim in worker.poll()] == [first]

    def test_a_publisher_does_not_wait_for_a_tick(self, db: Database, engine: Engine) -> None:
        first = debounced(engine)
        db.advance(seconds=2)
        ticker, publisher = Session(db), Session(db).hurry()
        ticker.begin()
        ticker.sql("select headrace._tick_due(10)")
        [((second,),)] = publisher.sql(self.PUBLISH, self.EVENT)
        ticker.commit()
        assert engine.event(first).status == "PENDING"
        assert due_in(engine, second) == 2
        check_places(db.sql)

    def test_batches_take_their_keys_in_one_order(self, db: Database) -> None:
        a, b = {**KEY, "debounce": "a"}, {**KEY, "debounce": "b"}
        one, other = Session(db), Session(db)
        for _ in range(20):
            racing = [
                Background(one.sql, self.PUBLISH, [json.dumps([a, b])]),
                Background(other.sql, self.PUBLISH, [json.dumps([b, a])]),
            ]
            for each in racing:
                each.result()
        assert db.sql("select count(*) from headrace.delayed") == [(2,)]
        check_places(db.sql)


def test_upkeep_forgets_the_keys_whose_event_no_longer_waits(engine: Engine, db: Database) -> None:
    debounced(engine, debounce="begun")
    db.advance(seconds=2)
    engine.claim()
    waits = debounced(engine, debounce="waits", settle=86400, at_latest=86400)
    db.advance(hours=2)
    while engine.tick(upkeep=True).more:
        pass
    assert db.sql("select key from headrace.debounce_keys") == [("waits",)]
    debounced(engine, debounce="waits")
    assert engine.event(waits).status == "CANCELLED"


def test_erased_events_leave_no_key_behind(engine: Engine, db: Database) -> None:
    id = debounced(engine, debounce="a secret")
    engine.call("erase", namespace="default", event_id=id)
    assert db.sql("select key from headrace.debounce_keys") == []
