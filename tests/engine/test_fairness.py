"""Who gets a turn: groups before routes, and what has waited for long before what is urgent, where a queue says so."""

from collections import Counter
from typing import Any

import pytest

from tests.database import Database
from tests.engine.functions_helpers import Engine, refused, stop_the_clock
from tests.engine.limits_helpers import change, limit, of, tenants
from tests.requirements import requirement


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


def many_of(engine: Engine, tenant: str, many: int, types: int = 1) -> None:
    for at in range(0, many, 1000):
        engine.publish(
            *[
                {"type": f"t{n % types}", "tags": [f"tenant:{tenant}"]}
                for n in range(at, min(at + 1000, many))
            ]
        )


@requirement("G4")
def test_types_and_tags_take_turns_whatever_waits_of_each(engine: Engine) -> None:
    many_of(engine, "a", 10_000)
    for small in "bcd":
        engine.publish(*of(small, 5))
    assert tenants(engine.poll(max_events=40)) == {"a": 25, "b": 5, "c": 5, "d": 5}


def test_groups_take_turns_however_many_types_each_has(engine: Engine) -> None:
    change(engine, fair_by={"tag": "tenant:"})
    many_of(engine, "a", 10_000, types=100)
    for small in "bcd":
        engine.publish(*of(small, 5))
    claims = engine.poll(max_events=40)
    assert tenants(claims) == {"a": 25, "b": 5, "c": 5, "d": 5}
    assert len({claim.type for claim in claims if claim.tags == ["tenant:a"]}) >= 10


def test_types_of_a_group_take_turns_among_themselves(engine: Engine) -> None:
    change(engine, fair_by={"tag": "tenant:"})
    engine.publish(*of("a", 100, type="much"), *of("a", 5, type="little"), *of("b", 100))
    claims = engine.poll(max_events=40)
    assert tenants(claims) == {"a": 20, "b": 20}
    assert Counter(claim.type for claim in claims)["little"] == 5


def test_one_at_a_time_groups_have_the_same_chance(engine: Engine) -> None:
    change(engine, fair_by={"tag": "tenant:"})
    many_of(engine, "a", 300, types=100)
    many_of(engine, "b", 300)
    seen = tenants([engine.claim() for _ in range(60)])
    assert 10 < seen["b"] < 50, "of 60 throws of a coin, this fails once in ten million"


def test_events_without_the_tag_are_one_group(engine: Engine) -> None:
    change(engine, fair_by={"tag": "tenant:"})
    engine.publish(*[{"type": f"t{n}"} for n in range(50)], *of("a", 50))
    claims = engine.poll(max_events=20)
    assert Counter(bool(claim.tags) for claim in claims) == {True: 10, False: 10}


def test_a_more_urgent_priority_comes_first_whatever_its_group(engine: Engine) -> None:
    change(engine, fair_by={"tag": "tenant:"})
    engine.publish(*of("a", 50, priority=1), *of("b", 50))
    assert tenants(engine.poll(max_events=40)) == {"a": 40}


def test_fairness_and_limits_hold_together(engine: Engine) -> None:
    change(engine, fair_by={"tag": "tenant:"})
    limit(engine, {"scope": "tag", "prefix": "tenant:", "at_once": 8})
    many_of(engine, "a", 1_000, types=100)
    engine.publish(*of("b", 50), *of("c", 5))
    assert tenants(engine.poll(max_events=40)) == {"a": 8, "b": 8, "c": 5}


# Aging ----------------------------------------------------------------------------------------------


def test_a_delivery_rises_a_priority_each_time_it_has_aged(engine: Engine, db: Database) -> None:
    stop_the_clock(db)
    change(engine, aging=600)
    [old] = engine.publish({"type": "old", "priority": 7})
    db.step(seconds=1199)
    engine.publish(*[{"type": "new", "priority": 5}] * 50)
    assert engine.claim().type == "new", "it has risen one priority, to 6"
    db.step(seconds=1)
    assert "old" in {claim.type for claim in engine.poll(max_events=10)}
    engine.publish({"type": "urgent", "priority": 4})
    assert engine.claim().type == "urgent"
    assert engine.event(old).priority == 7


def test_only_those_that_have_waited_rise(engine: Engine, db: Database) -> None:
    stop_the_clock(db)
    change(engine, aging=600)
    engine.publish(*[{"type": "slow", "priority": 9}] * 3)
    db.step(seconds=3600)
    engine.publish(*[{"type": "slow", "priority": 9}] * 50)
    engine.publish(*[{"type": "urgent", "priority": 5}] * 50)
    claims = engine.poll(max_events=20)
    assert Counter(claim.type for claim in claims) == {"slow": 3, "urgent": 17}


def test_without_aging_the_urgent_always_come_first(engine: Engine, db: Database) -> None:
    engine.publish({"type": "old", "priority": 7})
    db.step(days=3)
    engine.publish(*[{"type": "new", "priority": 5}] * 5)
    assert [engine.claim().type for _ in range(6)] == ["new"] * 5 + ["old"]


def test_what_is_more_urgent_than_all_stays_so(engine: Engine, db: Database) -> None:
    """Ages that would lead beyond the most urgent priority lead to it."""
    stop_the_clock(db)
    change(engine, aging=0.1)
    engine.publish({"type": "old", "priority": 9})
    db.step(days=365)
    engine.publish(*[{"type": "urgent", "priority": 0}] * 3)
    assert Counter(claim.type for claim in engine.poll(max_events=4)) == {"old": 1, "urgent": 3}


@pytest.mark.parametrize("setting", [{"fair_by": {"tag": "tenant:"}}, {"aging": 60}])
def test_a_queue_of_strict_order_has_no_turns(engine: Engine, setting: dict[str, Any]) -> None:
    with refused("QU001", "a queue of the order oldest has no fair_by and no aging"):
        change(engine, order="oldest", **setting)
