import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headrace import (
    EventQueue,
    InvalidInput,
    QueueNotFound,
    WrongIsolation,
)
from headrace.driver import run
from headrace.engine.statement import Statement, Together
from tests.client.clients import Client
from tests.database import Database


class Watch:
    """Which statements a client runs."""

    def __init__(self) -> None:
        self.statements: list[Statement[Any]] = []

    def see(self, step: Statement[Any] | Together) -> None:
        self.statements += step.statements if isinstance(step, Together) else [step]

    @property
    def sweeps(self) -> list[bool]:
        return [one.params[-4] for one in self.statements if "headrace.poll" in one.sql]

    @property
    def ticks(self) -> int:
        return sum("headrace.tick" in one.sql for one in self.statements)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """Sees every statement where it is run, whoever made it; one that sees nothing has gone blind."""
    watch = Watch()
    plain, awaited = run.run, run.run_async

    def seen(connection: Any, step: Any, **options: Any) -> Any:
        watch.see(step)
        return plain(connection, step, **options)

    def seen_async(connection: Any, step: Any, **options: Any) -> Any:
        watch.see(step)
        return awaited(connection, step, **options)

    monkeypatch.setattr(run, "run", seen)
    monkeypatch.setattr(run, "run_async", seen_async)
    yield watch
    assert watch.sweeps, "no poll was seen"


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def frozen(queue: Any) -> Iterator[Clock]:
    """A client whose own clock stands still."""
    clock = Clock()
    memory = queue.verbs.memory
    memory.clock = memory.ticks.clock = memory.claims.clock = clock
    yield clock


def test_a_poll_gives_no_more_than_it_was_asked_for(queue: Any) -> None:
    queue.publish_many([("a", {})] * 5)
    assert [len(queue.poll(max_events=2)) for _ in range(4)] == [2, 2, 1, 0]


def test_polls_filter_by_types_and_tags(queue: Any, db: Database) -> None:
    ids = queue.publish_many(
        [
            {"type": "order.created", "tags": ["high", "eu"]},
            {"type": "order.paid", "tags": ["high"]},
            {"type": "user.created", "tags": ["eu"]},
        ]
    )

    def found(**filter: Any) -> set[int]:
        claimed = queue.poll(max_events=10, **filter)
        for one in claimed:
            queue.release(one)
        db.advance(minutes=1)  # what is released several times in a row comes back later
        queue.tick()
        return {one.id for one in claimed}

    assert found() == set(ids)
    assert found(types=["order.*"]) == {ids[0], ids[1]}
    assert found(types=("user.created", "order.paid")) == {ids[1], ids[2]}
    assert found(tags=["high", "eu"]) == set(ids)
    assert found(tags=["high", "eu"], all_tags=True) == {ids[0]}
    assert found(types=["order.*"], tags=["eu"]) == {ids[0]}
    assert found(types=["nothing"]) == set()


@pytest.mark.parametrize(
    "arguments",
    [
        {"types": "order"},
        {"tags": "high"},
        {"types": []},
        {"types": [5]},
        {"types": ["\0"]},
        {"types": ["\ud800"]},
        {"tags": ["\ud800"]},
        {"worker": "\0"},
        {"worker": "w" * 201},
        {"max_events": 0},
        {"max_events": 1001},
        {"max_events": 2**40},
        {"lease": 0},
        {"lease": -1},
        {"lease": float("nan")},
        {"lease": float("inf")},
        {"lease": 1e300},
        {"lease": "60"},
    ],
)
def test_what_makes_no_sense_is_refused_and_claims_nothing(
    asked: EventQueue, shared: Database, arguments: Any
) -> None:
    event = asked.publish("a")
    with pytest.raises(InvalidInput):
        asked.poll(**arguments)
    assert shared.placement()[event.id] == ["ready"]
    (claimed,) = asked.poll()
    asked.complete(claimed)


def test_a_queue_that_is_not_there_is_named(client: Client) -> None:
    with pytest.raises(QueueNotFound, match="billing"):
        client.queue(queue="billing").poll()


def test_a_claim_of_each_is_held_one_by_one(queue: Any, db: Database) -> None:
    ids = queue.publish_many([("a", {})] * 2)
    claimed = queue.poll(max_events=2, each=True)
    assert all(one.held for one in claimed)
    assert db.placement() == {id: ["held"] for id in ids}


def test_suspects_are_claimed_alone_and_may_be_left_be(queue: Any, db: Database) -> None:
    queue.publish_many([("a", {})] * 3)
    queue.poll(max_events=3)
    db.advance(seconds=61)
    queue.tick()
    assert queue.poll(max_events=3, suspects=False) == []
    for _ in range(3):
        (claimed,) = queue.poll(max_events=3)
        assert queue.poll(max_events=3) == [], "one at a time: this worker has a suspect in work"
        queue.complete(claimed)
    assert queue.poll(max_events=3) == []


@pytest.mark.one_database("what a client does for each shard")
def test_a_new_client_sweeps_and_then_follows_its_hints(queue: Any, watch: Watch) -> None:
    with frozen(queue):
        queue.publish_many([("a", {})] * 3)
        for _ in range(3):
            assert queue.poll()
        assert watch.sweeps == [True, False, False]


@pytest.mark.one_database("what a client does for each shard")
def test_an_empty_poll_with_hints_looks_everywhere_before_it_says_so(
    queue: Any, watch: Watch
) -> None:
    with frozen(queue):
        queue.publish("a")
        assert queue.poll()
        queue.publish("b")
        assert [claimed.type for claimed in queue.poll()] == ["b"]
        assert queue.poll() == []
        assert watch.sweeps == [True, False, True, False, True]


@pytest.mark.one_database("what a client does for each shard")
def test_a_busy_client_sweeps_every_second(queue: Any, watch: Watch) -> None:
    with frozen(queue) as clock:
        queue.publish_many([("a", {})] * 5)
        for _ in range(5):
            assert queue.poll()
            clock.now += 0.4
        assert watch.sweeps == [True, False, False, True, False]


@pytest.mark.one_database("what a client does for each shard")
def test_filters_have_hints_of_their_own(queue: Any, watch: Watch) -> None:
    with frozen(queue):
        queue.publish_many([("a", {})] * 2 + [("b", {})] * 2)
        assert queue.poll(types=["a"])
        assert queue.poll(types=["b"])
        assert queue.poll(types=["a"])
        assert queue.poll(types=["b"])
        assert watch.sweeps == [True, True, False, False]


@pytest.mark.one_database("what a client does for each shard")
def test_a_client_that_polls_ticks_at_most_once_a_second(queue: Any, watch: Watch) -> None:
    with frozen(queue) as clock:
        for _ in range(3):
            queue.poll()
        assert watch.ticks == 1
        clock.now += 1.0
        queue.poll()
        assert watch.ticks == 2


def test_a_client_that_polls_ends_the_leases_that_have_run_out(queue: Any, db: Database) -> None:
    queue.publish_many([("a", {})] * 2)
    with frozen(queue) as clock:
        assert len(queue.poll(max_events=2, lease=5)) == 2
        db.advance(seconds=6)
        clock.now += 1.0
        assert len(queue.poll()) == 1
        assert ["lease"] not in db.placement().values()


@pytest.mark.one_database("what a client does for each shard")
def test_a_tick_that_fails_does_not_break_the_poll(
    queue: Any, db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    event = queue.publish("a")
    db.sql("alter function headrace.tick rename to tock")
    caplog.set_level(logging.WARNING, "headrace")
    assert [claimed.id for claimed in queue.poll()] == [event.id]
    with frozen(queue) as clock:
        for _ in range(3):
            clock.now += 1
            queue.poll()
    assert caplog.text.count("ticks fail") == 1


@pytest.mark.one_database("a transaction is one database's")
def test_a_poll_inside_the_callers_transaction_does_not_tick(client: Client, watch: Watch) -> None:
    client.queue().publish("a")
    connection = client.connection()
    queue = client.queue_on(connection)
    (claimed,) = queue.poll()
    assert watch.ticks == 0
    client.call(connection.rollback)
    (again,) = queue.poll()
    assert (again.id, again.attempt) == (claimed.id, claimed.attempt)
    client.call(connection.commit)


def test_a_poll_on_an_idle_connection_of_the_callers_ticks(client: Client, watch: Watch) -> None:
    queue = client.queue_on(client.connection(autocommit=True))
    assert queue.poll() == []
    assert watch.ticks == 1


def test_a_poll_outside_read_committed_is_refused(client: Client) -> None:
    connection = client.connection()
    client.call(connection.execute, "set transaction isolation level repeatable read")
    with pytest.raises(WrongIsolation, match="READ COMMITTED"):
        client.queue_on(connection).poll()


def test_an_event_that_cannot_be_read_is_dead_lettered_alone(
    queue: Any, db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    ids = queue.publish_many([("a", {"n": n}) for n in range(3)])
    # Nobody can publish this; somebody may have written it by hand.
    db.sql("update headrace.events set payload = '1e4400' where id = %s", [ids[1]])
    with caplog.at_level(logging.ERROR, "headrace"):
        claimed = queue.poll(max_events=3)
    assert [one.id for one in claimed] == [ids[0], ids[2]]
    assert db.placement() == {ids[0]: ["lease"], ids[1]: ["dead"], ids[2]: ["lease"]}
    assert [letter.reason for letter in queue.dead_letters()] == ["Its payload cannot be read"]
    assert str(ids[1]) in caplog.text
    queue.complete(claimed)


def test_beside_an_event_that_cannot_be_read_those_of_several_types_are_in_order(
    queue: Any, db: Database
) -> None:
    ids = [queue.publish(type, {}).id for type in "aba"]
    db.sql("update headrace.events set payload = '1e4400' where id = %s", [ids[0]])
    assert [claimed.id for claimed in queue.poll(max_events=3)] == ids[1:]


def test_behind_an_event_that_cannot_be_read_the_next_is_found(queue: Any, db: Database) -> None:
    ids = queue.publish_many([("a", {"n": n}) for n in range(3)])
    db.sql("update headrace.events set payload = '1e4400' where id < %s", [ids[2]])
    assert [claimed.id for claimed in queue.poll()] == [ids[2]]
    assert queue.poll() == []


def test_what_a_batch_has_in_common_is_every_events(queue: Any, db: Database) -> None:
    ids = queue.publish_many([{"type": "a", "payload": n, "tags": ["x"]} for n in range(20)])
    db.advance(seconds=1)
    ids += queue.publish_many([{"type": "a", "payload": n, "tags": ["x"]} for n in range(20)])
    claimed = queue.poll(max_events=40)
    assert [one.id for one in claimed] == ids
    assert [one.payload for one in claimed] == [*range(20), *range(20)]
    assert {(one.type, one.tags, one.attempt, one.retry_count) for one in claimed} == {
        ("a", ("x",), 1, 0)
    }
    assert [one.created_at for one in claimed] == [queue.event(id).created_at for id in ids]
    assert claimed[0].created_at < claimed[-1].created_at
    assert {one.title for one in claimed} == {"a"}
    queue.complete(claimed)


@pytest.mark.one_database("priorities order the events of a shard")
def test_events_of_several_types_come_in_the_order_of_their_priorities_and_ids(queue: Any) -> None:
    ids = queue.publish_many([("abc"[n % 3], n) for n in range(60)])
    [urgent] = queue.publish_many([{"type": "b", "payload": "urgent", "priority": 1}])
    claims = queue.poll(max_events=100)
    assert [claim.id for claim in claims] == [urgent, *sorted(ids)]
    told = {claim.id: (claim.type, claim.payload) for claim in claims[1:]}
    assert [told[id] for id in ids] == [("abc"[n % 3], n) for n in range(60)]


def test_the_details_of_a_batch_are_each_events_own(queue: Any) -> None:
    queue.publish_many(
        [{"type": "a", "payload": n, "correlation_id": f"c{n}", "title": "T"} for n in range(20)]
    )
    claimed = queue.poll(max_events=20)
    assert [one.correlation_id for one in claimed] == [f"c{n}" for n in range(20)]
    assert {one.title for one in claimed} == {"T"}
    queue.complete(claimed)


def test_what_is_claimed_behind_an_event_that_is_gone_is_handed_out(
    queue: Any, db: Database
) -> None:
    """Its row would have said where to look next; without that, nothing was found is not said."""
    ids = queue.publish_many([("a", {"n": n}) for n in range(4)])
    with frozen(queue):
        assert [one.id for one in queue.poll()] == ids[:1]
        db.sql("delete from headrace.events where id = %s", [ids[1]])
        assert [one.id for one in queue.poll(max_events=2)] == ids[2:3]
        assert [one.id for one in queue.poll()] == ids[3:]
