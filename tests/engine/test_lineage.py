"""lineage and find_events: events found by what they have to do with others, through indexes."""

import json
from typing import Any

import pytest

from tests.database import Database
from tests.engine.backlog import fill
from tests.engine.footprint import footprint
from tests.engine.functions_helpers import Engine, refused


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


def lineage(engine: Engine, event: int, **arguments: Any) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    rows = engine.call("lineage", namespace=engine.namespace, event_id=event, **arguments)
    for row in rows:
        found.setdefault(row.relation, []).append(row.id)
    return found


def child(engine: Engine, parent: int, chain: int | str, **fields: Any) -> int:
    [id] = engine.publish({"causation_id": str(parent), "correlation_id": str(chain), **fields})
    return id


def test_a_chain_is_told_from_each_of_its_events(engine: Engine) -> None:
    [root, alone] = engine.publish({"type": "order"}, {})
    bill, mail = child(engine, root, root, type="bill"), child(engine, root, root)
    paid = child(engine, bill, root)
    assert lineage(engine, root) == {"causes": [bill, mail], "correlated": [paid]}
    assert lineage(engine, bill) == {"caused_by": [root], "causes": [paid], "correlated": [mail]}
    assert lineage(engine, paid) == {"caused_by": [bill], "correlated": [root, mail]}
    assert lineage(engine, alone) == {}
    row = engine.call("lineage", namespace="default", event_id=bill)[0]
    assert (row.relation, row.type, row.status) == ("caused_by", "order", "PENDING")


def test_ids_that_are_none_of_ours_are_only_not_there(engine: Engine) -> None:
    [strange] = engine.publish({"causation_id": "order/7", "correlation_id": "0x1"})
    [other] = engine.publish({"causation_id": "9" * 40, "correlation_id": "0x1"})
    assert lineage(engine, strange) == {"correlated": [other]}
    with refused("QU012", "there is no event"):
        lineage(engine, 999_999)


def test_no_more_are_told_than_asked_for(engine: Engine) -> None:
    [root] = engine.publish({})
    ids = [child(engine, root, root) for _ in range(4)]
    assert lineage(engine, root, limit=3) == {"causes": ids[:3]}
    for limit in (0, 1001, None):
        with refused("QU001", "limit is a number"):
            lineage(engine, root, limit=limit)


def found(engine: Engine, word: str, **arguments: Any) -> list[int]:
    rows = engine.call("find_events", namespace=engine.namespace, word=word, **arguments)
    return [row.id for row in rows]


def test_an_event_is_found_by_id_idempotency_key_and_correlation(engine: Engine) -> None:
    [first] = engine.publish({"idempotency_key": "order 7", "payload": {"n": 1}})
    [second, third] = engine.publish(*[{"correlation_id": "order 7"}] * 2)
    assert found(engine, str(first)) == [first]
    assert found(engine, "order 7") == [third, second, first]
    assert found(engine, "order 7", limit=2) == [third, second]
    assert found(engine, "order") == found(engine, "") == found(engine, "0") == []
    [row] = engine.call("find_events", namespace="default", word=str(first))
    assert (row.payload, row.status) == (None, "PENDING")
    [row] = engine.call("find_events", namespace="default", word=str(first), payload=True)
    assert row.payload == {"n": 1}


def test_another_namespace_is_not_found(engine: Engine, db: Database) -> None:
    there = Engine(db, "there")
    there.call("create_namespace", namespace="there")
    [id] = there.publish({"idempotency_key": "k", "correlation_id": "c", "causation_id": "1"})
    [own] = engine.publish({"correlation_id": "c"})
    assert [found(engine, word) for word in (str(id), "k", "c")] == [[], [], [own]]
    assert lineage(engine, own) == {}
    with refused("QU012", "there is no event"):
        lineage(engine, id)


@pytest.mark.new_database
@pytest.mark.parametrize(
    "ask",
    [
        "select * from headrace.lineage('default', {id})",
        "select * from headrace.find_events('default', 'c')",
        "select * from headrace.find_events('default', '{id}')",
        "select * from headrace.find_events('default', 'nothing')",
    ],
)
def test_to_find_costs_the_same_however_many_there_are(engine: Engine, ask: str) -> None:
    events = [{"correlation_id": f"c{n}", "causation_id": f"x{n}"} for n in range(500)]
    [id] = engine.publish({"correlation_id": "c"})
    engine.publish_json(json.dumps(events))
    before = footprint(engine.connection, ask.format(id=id))[1]
    fill(engine.db, 20_000)
    engine.db.sql("analyze")
    after = footprint(engine.connection, ask.format(id=id))[1]
    assert after.total.blocks <= before.total.blocks + after.total.scans + 5, f"{after}\n{before}"


@pytest.mark.new_database
def test_who_says_nothing_of_where_an_event_comes_from_is_in_no_index(
    engine: Engine, db: Database
) -> None:
    engine.publish(*[{"title": "a title"}] * 100)
    db.sql("analyze headrace.events")
    sizes = db.sql("""
        select sum(c.reltuples) from pg_class c join pg_index i on i.indexrelid = c.oid
        join pg_inherits h on h.inhrelid = c.oid
        where h.inhparent in ('headrace.events_causation'::regclass, 'headrace.events_correlation'::regclass)
    """)
    assert sizes == [(0,)]
