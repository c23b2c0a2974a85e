"""workers: who works on a queue, by what leases and log say."""

from datetime import timedelta
from typing import Any

import pytest

from tests.database import Database
from tests.engine.footprint import footprint
from tests.engine.functions_helpers import Engine, refused, stop_the_clock
from tests.requirements import requirement

OUTCOMES = """
insert into headrace.outcomes (id, at, picked_at, bucket, lease, namespace, queue, action, worker, events, attempts)
select nextval('headrace.ids'), headrace._now() - (30000 - g) * interval '10 ms', now(), 0, 1, q.namespace, q.id, 'COMPLETED', 'w', '{1}', '{1}'
from headrace.queues q, generate_series(1, 30000) g where q.space = 'default' order by g
"""


@pytest.fixture
def engine(db: Database) -> Engine:
    stop_the_clock(db)
    return Engine(db)


def workers(engine: Engine, **arguments: Any) -> dict[str, Any]:
    rows = engine.call("workers", namespace=engine.namespace, **arguments)
    assert len({row.worker_id for row in rows}) == len(rows)
    return {row.worker_id: row for row in rows}


@requirement("API-17", "API-3")
def test_a_worker_is_known_by_what_it_does(engine: Engine, db: Database) -> None:
    assert workers(engine) == {}
    start = engine.now()
    engine.publish(*({"payload": n} for n in range(20)))
    batch = engine.poll(5, worker="a")
    db.advance(seconds=10)
    held = engine.poll(3, worker="a", each=True, lease="5 minutes")
    engine.poll(2, worker="b")
    a, b = workers(engine)["a"], workers(engine)["b"]
    assert (a.holds, a.oldest_claim_at, a.last_seen_at) == (8, start, start + timedelta(seconds=10))
    assert a.lease_expires_at == start + timedelta(minutes=1)
    assert (b.holds, b.completed, b.failed) == (2, 0, 0)

    db.advance(seconds=10)
    engine.finish(batch[:2])
    engine.finish(held, {"1": {"action": "fail"}, "2": {"action": "release"}})
    a = workers(engine)["a"]
    assert (a.holds, a.completed, a.failed, a.released) == (3, 3, 1, 1)
    assert a.last_seen_at == start + timedelta(seconds=20)
    assert a.since == start + timedelta(seconds=20) - timedelta(minutes=5)


def test_who_is_silent_is_forgotten_and_who_has_lost_claims_is_told(
    engine: Engine, db: Database
) -> None:
    engine.publish({}, {})
    engine.end("complete", engine.claim(worker="a"))
    engine.claim(worker="b")
    db.advance(minutes=2)
    engine.tick()
    lost = workers(engine)["b"]
    assert (lost.holds, lost.abandoned, lost.last_seen_at) == (0, 1, None)
    db.advance(minutes=4)
    assert set(workers(engine)) == {"b"}
    assert set(workers(engine, period="10 minutes")) == {"a", "b"}
    db.advance(minutes=4)
    assert workers(engine) == {}


@requirement("G16")
def test_queues_are_told_apart(engine: Engine, db: Database) -> None:
    engine.call("create_namespace", namespace="other")
    other = Engine(db, "other")
    engine.publish({}, {})
    engine.end("complete", engine.claim(worker="a"))
    engine.claim(worker="b", each=True)
    assert workers(other) == {}


def test_what_an_administrator_does_is_not_a_workers(engine: Engine) -> None:
    [id, _] = engine.publish({}, {})
    engine.call("cancel", namespace="default", event_id=id, actor="boss")
    assert workers(engine) == {}
    claim = engine.claim(worker="a")
    engine.call("cancel", namespace="default", event_id=claim.id, actor="boss")
    assert set(workers(engine)) == {"a"}


@pytest.mark.new_database
@pytest.mark.parametrize("known", [False, True])
def test_it_reads_no_more_than_a_bound(engine: Engine, db: Database, known: bool) -> None:
    db.sql(OUTCOMES)
    if known:
        db.sql("analyze headrace.outcomes")
    [worker], touched = footprint(engine.connection, "select * from headrace.workers('default')")
    assert worker.completed == 20_000
    assert worker.since == engine.now() - timedelta(milliseconds=10) * 19_999
    assert touched.total.entries < 20_100, str(touched)


def test_an_unknown_queue_or_period_is_refused(engine: Engine) -> None:
    with refused("QU010"):
        workers(Engine(engine.db, "nowhere"))
    with refused("QU011"):
        workers(engine, queue="other")
    with refused("QU001"):
        workers(engine, period=None)
