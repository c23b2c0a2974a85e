"""A filter costs by the routes that have work, not by those that ever were."""

import pytest

from tests.database import Database
from tests.engine.footprint import footprint
from tests.engine.functions_helpers import Engine


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


EVER = """
insert into headrace.routes (namespace, route, type, tags, created_at)
select 1, headrace._route('order', array['customer-' || g]), 'order', array['customer-' || g], headrace._now()
from generate_series(1, 20000) g
"""
FILTERED = "select id from headrace.poll('default', types => '{order}', max_events => 10)"


@pytest.mark.new_database
def test_a_filtered_sweep_does_not_look_at_routes_that_have_nothing(
    engine: Engine, db: Database
) -> None:
    db.sql(EVER)
    published = engine.publish(*({"type": "order", "tags": [f"customer-{n}"]} for n in (7, 8, 9)))
    with db.connect() as connection:
        claimed, read = footprint(connection, FILTERED)
    assert sorted(id for (id,) in claimed) == published
    assert read.total.entries < 300


@pytest.mark.parametrize("suspects", [False, True])
def test_with_work_on_thousands_of_routes_a_filter_selects_the_same(
    engine: Engine, db: Database, suspects: bool
) -> None:
    others = [{"type": f"other.{n}"} for n in range(1_100)]
    wanted = [{"type": "order.a", "tags": ["x"]}, {"type": "order.b", "priority": 2}]
    published = engine.publish(*others[:600], *wanted, *others[600:])[600:602]
    if suspects:
        while engine.poll(max_events=1000):
            pass
        db.advance(minutes=2)
        while engine.tick().more:
            pass
    claimed = [
        claim
        for _ in range(2)
        for claim in engine.poll(max_events=10, types=["order.*"], worker=f"w:{_}")
    ]
    assert sorted(claim.id for claim in claimed) == published
    assert engine.poll(types=["order.c"]) == []
    if not suspects:
        assert engine.poll(types=["other.7", "other.8"], tags=["x"]) == []
