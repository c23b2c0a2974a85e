"""poll_batch: what poll returns, in as few rows as it can be said."""

import json
from operator import itemgetter
from typing import Any

import pytest

from headrace.model import instant
from tests.database import Database
from tests.engine.functions_helpers import Engine, stop_the_clock

COMMON = ("type", "tags", "attempt", "priority", "retry_count", "crashes", "max_retries", "held")
MANY = 40  # more than make a pack


@pytest.fixture
def engine(db: Database) -> Engine:
    stop_the_clock(db)
    return Engine(db)


def one_by_one(rows: list[Any]) -> list[dict[str, Any]]:
    """The events of batches, each as poll would tell it, and in its order."""
    told = []
    for row in rows:
        count = len(row.ids)
        times = [row.created[at : at + 8] for at in range(0, len(row.created), 8)]
        for id, payload, details, created in zip(
            row.ids,
            json.loads(row.payloads),
            json.loads(row.details) if row.details else [None] * count,
            times if len(times) == count else times * count,
            strict=True,
        ):
            event = {name: getattr(row, name) for name in COMMON}
            event |= {"id": id, "payload": payload, "details": details}
            told.append(event | {"created_at": instant(created)})
    if len(told) > len(rows) > 1:
        told.sort(key=itemgetter("priority", "id"))
    return told


def polled(rows: list[Any]) -> list[dict[str, Any]]:
    names = (*COMMON, "id", "payload", "details", "created_at")
    return [{name: getattr(row, name) for name in names} for row in rows]


def as_poll_tells(engine: Engine, **arguments: Any) -> list[dict[str, Any]]:
    """What poll would say now, had it been called instead."""
    with engine.connection.transaction(force_rollback=True):
        return polled(engine.call("poll", namespace="default", **arguments))


def poll_batch(engine: Engine, **arguments: Any) -> list[Any]:
    arguments.setdefault("max_events", 1000)
    told = as_poll_tells(engine, **arguments)
    rows = engine.call("poll_batch", namespace="default", **arguments)
    assert one_by_one(rows) == told
    return rows


def alike(count: int = MANY, **header: Any) -> list[dict[str, Any]]:
    return [{"type": "a", "payload": {"n": n}, **header} for n in range(count)]


def test_nothing_is_no_row(engine: Engine) -> None:
    assert poll_batch(engine) == []


@pytest.mark.parametrize("each", [False, True], ids=["batch", "held"])
@pytest.mark.parametrize(
    "header",
    [{}, {"tags": ["x", "y"]}, {"priority": 2, "max_retries": 7}, {"title": "T", "version": "1"}],
    ids=["plain", "tags", "settings", "details"],
)
def test_what_was_published_together_is_one_row(
    engine: Engine, header: dict[str, Any], each: bool
) -> None:
    ids = engine.publish(*alike(**header))
    [row] = poll_batch(engine, each=each)
    assert row.ids == ids
    assert row.hints is not None
    [lease] = engine.connection.execute("select * from headrace.leases").fetchall()
    assert (row.lease, row.lease_expires_at) == (lease.id, lease.until)


def test_events_of_several_moments_are_one_row(engine: Engine, db: Database) -> None:
    first = engine.publish(*alike(3))
    db.advance(seconds=60)
    second = engine.publish(*alike(3))
    [row] = poll_batch(engine)
    assert row.ids == first + second
    assert len(row.created) == 8 * 6


def test_each_has_its_own_details_if_all_have_some(engine: Engine) -> None:
    engine.publish(*[{"type": "a", "payload": n, "correlation_id": str(n)} for n in range(5)])
    assert len(poll_batch(engine)) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"title": "other"},
        {"max_retries": 9},
        {"tags": ["y", "x"]},
        {"priority": 1},
        {"type": "b"},
        {"payload": {"long": "".join(chr(0x4E00 + n % 9_000) for n in range(3_000))}},
    ],
    ids=["details", "max_retries", "order of tags", "priority", "type", "long"],
)
def test_what_differs_has_a_row_of_its_own(engine: Engine, other: dict[str, Any]) -> None:
    tags = {"tags": ["x", "y"]}
    engine.publish(*alike(20, **tags), {"type": "a", "payload": None, **tags, **other})
    rows = poll_batch(engine)
    assert sorted(len(row.ids) for row in rows) == [1, 20]
    assert [row.hints is not None for row in rows] == [True, False]


def test_events_of_several_kinds_have_a_row_for_each_kind(engine: Engine, db: Database) -> None:
    kinds = [{"type": t, "priority": p} for t in "abc" for p in (1, 5)]
    for _ in range(2):
        engine.publish(*[{"payload": n, **kinds[n % len(kinds)]} for n in range(60)])
        db.advance(seconds=60)
    rows = poll_batch(engine)
    assert [len(row.ids) for row in rows] == [20] * 6
    assert [row.priority for row in rows] == [1] * 3 + [5] * 3
    assert [row.hints is not None for row in rows] == [True] + [False] * 5


def test_an_event_of_several_kinds_that_is_gone_is_left_out_and_buried(
    engine: Engine, db: Database
) -> None:
    ids = engine.publish(*[{"type": "abc"[n % 3]} for n in range(30)])
    db.sql("delete from headrace.events where id = %s", [ids[4]])
    rows = poll_batch(engine)
    assert [id for row in rows for id in row.ids] == ids[:4] + ids[5:]
    assert [row.hints is not None for row in rows] == [True] + [False] * 28
    assert db.sql("select event from headrace.dead_letters") == [(ids[4],)]


def test_what_begins_and_ends_alike_may_be_of_another_kind_between(engine: Engine) -> None:
    """If a pair had less than its share, the next round begins with that with which the last one began, which is drawn by lot."""
    engine.publish(*alike(30), *[{"type": "b", "payload": n} for n in range(2)])
    for _ in range(8):
        with engine.connection.transaction(force_rollback=True):
            assert sorted(len(row.ids) for row in poll_batch(engine, max_events=20)) == [2, 18]


def test_what_was_claimed_before_is_told_with_its_attempt(engine: Engine, db: Database) -> None:
    engine.publish(*alike(20))
    claims = engine.poll(20)
    engine.finish(claims, {"3": {"action": "fail", "error": "x", "retry_in": 0}}, leases=True)
    for claim in engine.poll(20):
        engine.end("release", claim, lease=claim.lease)
    rows = poll_batch(engine)
    assert [(row.attempt, row.retry_count) for row in rows] == [(3, 1)]


def test_an_event_that_is_gone_is_left_out_and_buried(engine: Engine, db: Database) -> None:
    ids = engine.publish(*alike(20))
    db.sql("delete from headrace.events where id = %s", [ids[4]])
    rows = poll_batch(engine)
    assert [id for row in rows for id in row.ids] == ids[:4] + ids[5:]
    assert db.sql("select event from headrace.dead_letters") == [(ids[4],)]


def test_every_event_has_its_own_payload_when_packs_overlap(engine: Engine, db: Database) -> None:
    """The ids of publishers at the same moment interleave; so they are made to here."""
    engine.publish(*({"payload": {"n": n}} for n in range(40)))
    db.sql("update headrace.events set payload = jsonb_build_object('id', id)")
    db.sql("""
        with gone as (delete from headrace.ready returning *),
        member as (select g.created_at, g.route, g.queue, g.priority, e as event from gone g, unnest(g.pack) e)
        insert into headrace.ready (event, created_at, route, seq, queue, priority, pack)
        select min(event), created_at, route, min(event), queue, priority, array_agg(event order by event)
        from member group by created_at, route, queue, priority, headrace._pack(event), headrace.place(event) % 2""")
    told = one_by_one(engine.call("poll_batch", namespace="default", max_events=100))
    assert [event["payload"]["id"] for event in told] == [event["id"] for event in told]
    assert len(told) == 40


def test_every_event_has_its_own_payload_beside_ordering_keys(engine: Engine) -> None:
    first, *_ = engine.publish(
        {"key": "k", "payload": {"n": 0}}, *({"payload": {"n": n}} for n in range(1, 30))
    )
    told = one_by_one(engine.call("poll_batch", namespace="default", max_events=100))
    assert len(told) == 30
    assert {event["id"] - first: event["payload"]["n"] for event in told} == {
        n: n for n in range(30)
    }
