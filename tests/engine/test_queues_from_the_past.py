"""Queues that begin in the past: each event of before once, none twice, whoever publishes while the queue is made."""

from typing import Any

import pytest

from tests.database import Database
from tests.engine.functions_helpers import Engine
from tests.engine.races_helpers import (
    ISOLATION_LEVELS,
    REPEATABLE_READ,
    Session,
)

CREATE = "select headrace.create_queue('default', 'late', after => 0)"


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


def create(engine: Engine, **arguments: Any) -> None:
    arguments = arguments or {"after": 0}
    engine.call("create_queue", namespace="default", queue="late", **arguments)


def fill(engine: Engine) -> None:
    """Tick until there is nothing to do at once."""
    while engine.tick().more:
        pass


def filling(engine: Engine) -> str | None:
    [row] = engine.call("queue", namespace="default", queue="late")
    return row.filling


def got(db: Database) -> list[int]:
    """The events in the queue, each as often as it is there."""
    return [
        event
        for (event,) in db.sql(
            "select d.event from headrace.deliveries d join headrace.queues q on q.id = d.queue"
            " where q.name = 'late' order by d.event"
        )
    ]


def test_it_gets_everything_that_was_published_before(engine: Engine, db: Database) -> None:
    ids = engine.publish(*[{"type": f"t{n % 3}", "tags": ["x"] * (n % 2)} for n in range(50)])
    engine.poll(max_events=10)
    engine.finish(engine.poll(max_events=10))
    create(engine)
    assert filling(engine) == "waiting"
    fill(engine)
    assert filling(engine) is None
    assert got(db) == ids
    assert db.sql("select count(*) from headrace.chores") == [(0,)]


def test_it_gets_what_it_takes(engine: Engine, db: Database) -> None:
    ids = engine.publish(*[{"type": f"t{n % 3}", "tags": ["x", "y"][: n % 3]} for n in range(30)])
    create(engine, types=["t1", "t2"], tags=["y"], after=0)
    fill(engine)
    assert got(db) == ids[2::3]


def test_it_begins_after_an_event_or_at_a_time(engine: Engine, db: Database) -> None:
    before = engine.publish({}, {}, {})
    db.advance(seconds=10)
    since = engine.now()
    after = engine.publish({}, {})
    create(engine, since=since)
    engine.call("create_queue", namespace="default", queue="later", after=before[1])
    fill(engine)
    assert got(db) == after
    [row] = engine.call("queue", namespace="default", queue="later")
    assert row.depth == 3


def test_what_is_of_the_past_is_due_now_and_in_the_order_of_ids(
    engine: Engine, db: Database
) -> None:
    ids = engine.publish(*[{"delay": 3600}] * 3, *[{}] * 3)
    create(engine)
    fill(engine)
    claims = engine.poll(queue="late", max_events=10)
    assert [claim.id for claim in claims] == ids
    assert {(claim.attempt, claim.retry_count) for claim in claims} == {(1, 0)}


def test_it_is_filled_in_steps_that_are_committed(engine: Engine, db: Database) -> None:
    db.sql(
        "select headrace.publish('default', (select jsonb_agg('{}'::jsonb) from generate_series(1, 12000)))"
    )
    create(engine)
    assert engine.tick().more
    assert filling(engine) == "running"
    assert len(got(db)) == 10_000
    with engine.connection.transaction(force_rollback=True):  # a crash in the middle of a step
        assert not engine.tick().more
        assert len(db.sql("select 1 from headrace.chores")) == 1
    assert not engine.tick().more
    assert got(db) == [id for (id,) in db.sql("select id from headrace.events order by id")]


def test_a_limit_holds_for_what_it_is_filled_with(engine: Engine, db: Database) -> None:
    ids = engine.publish(*[{}] * 25)
    create(engine, after=0, settings='{"max_queue_depth": 10}')
    fill(engine)
    assert got(db) == ids[:10]
    taken = engine.poll(queue="late", max_events=4)
    fill(engine)
    assert len(got(db)) == 14
    while filling(engine):
        taken += engine.poll(queue="late", max_events=10)
        fill(engine)
    taken += engine.poll(queue="late", max_events=10)
    assert sorted(claim.id for claim in taken) == ids


def test_one_that_is_off_or_draining_is_not_filled_until_it_is_on_again(
    engine: Engine, db: Database
) -> None:
    def change(settings: str) -> None:
        engine.call("change_queue", namespace="default", queue="late", settings=settings)

    ids = engine.publish({}, {})
    create(engine, after=0, settings='{"max_queue_depth": 1}')
    change('{"takes": false}')
    fill(engine)
    assert got(db) == []
    change('{"takes": true}')
    fill(engine)
    assert got(db) == ids[:1]
    engine.call("drain", namespace="default", queue="late")
    change('{"max_queue_depth": null}')
    fill(engine)
    assert got(db) == ids[:1]
    engine.call("resume", namespace="default", queue="late")
    fill(engine)
    assert got(db) == ids


def test_other_namespaces_are_none_of_its_business(engine: Engine, db: Database) -> None:
    engine.call("create_namespace", namespace="there")
    Engine(db, "there").publish({}, {})
    ids = engine.publish({})
    create(engine)
    fill(engine)
    assert got(db) == ids


def test_deliveries_with_an_ordering_key_wait_for_their_turn(engine: Engine, db: Database) -> None:
    first, other, second = engine.publish({"key": "k"}, {}, {"key": "k"})
    create(engine)
    fill(engine)
    assert got(db) == [first, other, second]
    claims = {claim.id: claim for claim in engine.poll(queue="late", max_events=10)}
    claims |= {claim.id: claim for claim in engine.poll(queue="late", max_events=10)}
    assert sorted(claims) == [first, other]
    engine.end("complete", claims[first], queue="late")
    assert engine.claim(queue="late").id == second


# --- publishers that are open while it is made


@pytest.mark.parametrize("isolation", ISOLATION_LEVELS)
@pytest.mark.parametrize("published", ["before", "after"])
def test_nothing_of_an_open_transaction_is_missed_or_doubled(
    engine: Engine, db: Database, isolation: str, published: str
) -> None:
    """Above READ COMMITTED it publishes by a snapshot that does not know of the queue, long after that was made."""
    publisher = Session(db)
    publisher.begin(isolation)
    ids = publisher.publish(2) if published == "before" else []
    create(engine)
    ids += publisher.publish(2)
    fill(engine)
    assert filling(engine) == "waiting"
    assert got(db) == []
    publisher.commit()
    ids += publisher.publish(1)
    fill(engine)
    assert filling(engine) is None
    assert got(db) == ids


def test_who_begins_later_is_not_waited_for(engine: Engine, db: Database) -> None:
    [first] = engine.publish({})
    create(engine)
    engine.tick()
    Session(db).begin(REPEATABLE_READ)
    fill(engine)
    assert filling(engine) is None
    assert got(db) == [first]


def test_it_does_not_begin_before_its_own_transaction_is_over(engine: Engine, db: Database) -> None:
    late = Session(db)
    with engine.connection.transaction():
        create(engine)
        engine.tick()
        late.begin(REPEATABLE_READ)
    fill(engine)
    assert filling(engine) == "waiting"
    ids = late.publish()
    late.commit()
    fill(engine)
    assert got(db) == ids


def test_transactions_of_other_databases_are_not_waited_for(
    engine: Engine, db: Database, empty_db: Database
) -> None:
    elsewhere = empty_db.connect()
    elsewhere.execute("begin; select pg_current_xact_id()")
    create(engine)
    fill(engine)
    assert filling(engine) is None


def test_what_was_noted_on_another_server_holds_nothing_up(engine: Engine, db: Database) -> None:
    ids = engine.publish({}, {})
    create(engine)
    db.sql("update headrace.chores set waits_for = '{99/123456,prepared elsewhere}', made_by = '3'")
    fill(engine)
    assert got(db) == ids


def test_what_is_prepared_for_a_commit_in_two_phases_is_waited_for(
    engine: Engine, db: Database
) -> None:
    # PostgreSQL prepares nothing that has sent a notification.
    db.sql(
        "create or replace function headrace._wake(queue int) returns void language sql as 'select'"
    )
    publishers = Session(db), Session(db)
    ids = []
    for publisher in publishers:
        publisher.begin()
        ids += publisher.publish()
    publishers[0].sql("prepare transaction 'before'")
    create(engine)
    fill(engine)
    publishers[1].sql("prepare transaction 'after'")
    for name in ("after", "before"):
        fill(engine)
        assert filling(engine) == "waiting"
        db.sql(f"commit prepared '{name}'")
    fill(engine)
    assert got(db) == ids


def test_what_was_erased_is_not_delivered_again(engine: Engine, db: Database) -> None:
    first, erased, alike = engine.publish({}, {}, {"payload": {"erased": True}})
    engine.call("erase", namespace="default", event_id=erased)
    create(engine, since="-infinity")
    fill(engine)
    assert got(db) == [first, alike]


def test_a_small_limit_does_not_make_it_look_at_few(engine: Engine, db: Database) -> None:
    """Room for one is not one step per event that is none of its business."""
    engine.publish(*({"type": "other"} for _ in range(300)))
    wanted = engine.publish({"type": "wanted"}, {"type": "wanted"})
    create(engine, types=["wanted"], after=0, settings='{"max_queue_depth": 1}')
    engine.tick()
    engine.tick()
    assert got(db) == wanted[:1]
    assert not engine.tick().more, "there is no room"
    for id in wanted:
        assert got(db) == [id]
        assert engine.poll(queue="late")
        engine.call("complete", namespace="default", event=id, attempt=1, queue="late")
        fill(engine)
    assert got(db) == []
    assert filling(engine) is None
