"""poll_for: a claim for several workers is what each of them would have got alone."""

import json
from typing import Any

import psycopg
import pytest

from tests.database import Database
from tests.engine.functions_helpers import Engine, stop_the_clock
from tests.engine.limits_helpers import limit
from tests.requirements import requirement

WORKERS = ["w:1", "w:2", "w:3", "w:4"]


@pytest.fixture
def engine(db: Database) -> Engine:
    stop_the_clock(db)
    return Engine(db)


def poll_for(engine: Engine, *workers: str, **arguments: Any) -> list[Any]:
    given = {"namespace": "default", "queue": "main", "workers": list(workers or WORKERS)}
    return engine.call("poll_for", **given | arguments)


def leases(db: Database) -> dict[int, tuple[str, int, str]]:
    rows = db.sql("select id, worker, size, token::text from headrace.leases")
    return {id: tuple(rest) for id, *rest in rows}  # type: ignore[misc]


@requirement("G6")
def test_each_worker_has_an_event_a_lease_and_a_token_of_its_own(
    engine: Engine, db: Database
) -> None:
    ids = engine.publish(*[{"type": "a", "payload": n} for n in range(6)])
    rows = poll_for(engine)
    assert [row.place for row in rows] == [1, 2, 3, 4]
    assert [row.ids for row in rows] == [[id] for id in ids[:4]]
    assert [json.loads(row.payloads) for row in rows] == [[n] for n in range(4)]
    assert all(row.held and row.attempt == 1 for row in rows)
    assert leases(db) == {
        row.lease: (worker, 1, str(row.lease_token))
        for row, worker in zip(rows, WORKERS, strict=True)
    }
    held = db.sql("select event, lease, position, token from headrace.held order by event")
    assert held == [(row.ids[0], row.lease, 0, row.lease_token) for row in rows]


@requirement("G6", "G7")
def test_each_ends_its_own_and_not_that_of_another(engine: Engine, db: Database) -> None:
    engine.publish(*[{"type": "a"}] * 3)
    first, second, _ = poll_for(engine, *WORKERS[:3])

    def report(row: Any, worker: str, token: Any) -> str:
        [verdict] = engine.call(
            "report",
            namespace="default",
            queue="main",
            events=row.ids,
            attempts=[1],
            workers=[worker],
            lease_tokens=[str(token)],
        )
        return str(verdict.verdict)

    assert report(first, WORKERS[1], first.lease_token) == "lost"
    assert report(first, WORKERS[0], second.lease_token) == "lost"
    assert report(first, WORKERS[0], first.lease_token) == "counted"
    assert report(second, WORKERS[1], second.lease_token) == "counted"
    log = db.sql(
        "select worker, events from headrace.outcomes where action = 'COMPLETED' order by events"
    )
    assert log == [(WORKERS[0], first.ids), (WORKERS[1], second.ids)]


@requirement("G6")
def test_a_heartbeat_extends_one_worker_s_event_alone(engine: Engine, db: Database) -> None:
    engine.publish(*[{"type": "a"}] * 2)
    [first, _] = poll_for(engine, *WORKERS[:2], lease="10 s")
    [beat] = engine.call(
        "heartbeat", namespace="default", event=first.ids[0], worker=WORKERS[0], by="60 s"
    )
    assert beat.lease_expires_at is not None
    until = dict(db.sql("select worker, until - picked_at from headrace.leases"))
    assert until[WORKERS[0]].total_seconds() == 60
    assert until[WORKERS[1]].total_seconds() == 10


def test_fewer_events_go_to_the_first_workers(engine: Engine) -> None:
    engine.publish({"type": "a"}, {"type": "a"})
    assert [row.place for row in poll_for(engine)] == [1, 2]
    assert poll_for(engine) == []


def test_one_worker_gets_what_poll_gives(engine: Engine) -> None:
    engine.publish({"type": "a", "payload": {"n": 1}, "tags": ["x"], "title": "T"})
    with engine.connection.transaction(force_rollback=True):
        [alone] = engine.call("poll", namespace="default", worker="w:1", each=True)
    [row] = poll_for(engine, "w:1")
    names = ("type", "tags", "attempt", "priority", "retry_count", "crashes", "max_retries", "held")
    assert [getattr(row, name) for name in names] == [getattr(alone, name) for name in names]
    assert (row.ids, json.loads(row.payloads)) == ([alone.id], [alone.payload])
    assert json.loads(row.details) == [alone.details]


@requirement("G8")
def test_a_suspect_does_not_keep_the_others_from_their_events(engine: Engine, db: Database) -> None:
    """A suspect comes alone."""
    engine.publish(*[{"type": "a"}] * 4)
    [claimed] = engine.call("poll", namespace="default", worker="killed", each=True)
    db.advance(seconds=61)
    engine.call("tick")
    rows = poll_for(engine)
    assert [row.place for row in rows] == [1, 2, 3, 4]
    assert sorted(row.ids[0] for row in rows)[0] == claimed.id
    assert [row.attempt for row in rows].count(2) == 1


def test_limits_hold_for_all_of_them_together(engine: Engine, db: Database) -> None:
    db.sql(
        """select headrace.change_queue('default', 'main',
               '{"limits": [{"scope": "type", "match": "a", "at_once": 2}]}')"""
    )
    engine.publish(*[{"type": "a"}] * 4)
    rows = poll_for(engine)
    assert [row.place for row in rows] == [1, 2]
    slots = db.sql("select lease, events from headrace.limit_slots order by lease")
    assert slots == sorted((row.lease, row.ids) for row in rows)
    assert poll_for(engine) == []


def test_events_of_a_key_go_to_one_worker_at_a_time(engine: Engine) -> None:
    first, *_ = engine.publish(*[{"type": "a", "key": "k"}] * 3, {"type": "a", "key": "other"})
    rows = poll_for(engine)
    assert len(rows) == 2
    assert first in [row.ids[0] for row in rows]


def test_a_queue_s_batch_size_is_of_each_claim(engine: Engine, db: Database) -> None:
    db.sql("""select headrace.change_queue('default', 'main', '{"batch_size": 1}')""")
    engine.publish(*[{"type": "a"}] * 4)
    assert [row.place for row in poll_for(engine)] == [1, 2, 3, 4]


def test_an_event_that_is_stored_nowhere_is_left_out(engine: Engine, db: Database) -> None:
    gone, *others = engine.publish(*[{"type": "a"}] * 3)
    db.sql("delete from headrace.events where id = %s", [gone])
    rows = poll_for(engine, *WORKERS[:3])
    assert [(row.place, row.ids) for row in rows] == [(2, [others[0]]), (3, [others[1]])]
    assert [worker for worker, *_ in leases(db).values()].count(WORKERS[1]) == 1
    assert db.sql("select count(*) from headrace.held where event = %s", [gone]) == [(0,)]


@pytest.mark.parametrize("workers", [[], [None], ["x" * 201], ["w"] * 1001])
def test_workers_are_names(engine: Engine, workers: list[Any]) -> None:
    with pytest.raises(psycopg.DatabaseError) as caught:
        engine.call("poll_for", namespace="default", queue="main", workers=workers)
    assert caught.value.sqlstate == "QU001"


def test_it_tells_when_a_rate_lets_the_next_event_start(engine: Engine) -> None:
    limit(engine, {"scope": "queue", "rate": 6, "per": 1, "burst": 0})
    engine.publish(*[{"type": "a"}] * 3)
    *rows, last = poll_for(engine)
    assert [row.place for row in rows] == [1]
    assert last.place is None
    assert 0.1 < last.look_in < 0.2
