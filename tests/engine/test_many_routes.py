"""Claims from many types: whose turn it is, and what a claim touches."""

import random
from collections import Counter
from typing import Any

import pytest

from tests.database import Database
from tests.engine.footprint import footprint
from tests.engine.functions_helpers import Engine
from tests.places import check_places
from tests.requirements import requirement


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


def ids(claims: list[Any]) -> list[int]:
    return [claim.id for claim in claims]


def mixed(engine: Engine, types: int, rounds: int) -> dict[str, list[int]]:
    """Events of as many types, one of each after the other, by type."""
    published: dict[str, list[int]] = {}
    for _ in range(rounds):
        batch = [f"t{n}" for n in range(types)]
        random.shuffle(batch)
        for kind, id in zip(batch, engine.publish(*({"type": t} for t in batch)), strict=True):
            published.setdefault(kind, []).append(id)
    return published


@requirement("G4")
def test_a_claim_takes_the_oldest_of_each_of_many_types(engine: Engine) -> None:
    published = mixed(engine, types=40, rounds=5)
    for nth in range(5):
        claims = engine.poll(max_events=40)
        assert sorted(ids(claims)) == sorted(of_type[nth] for of_type in published.values())


@requirement("G4")
@pytest.mark.parametrize("size", [50, 100, 300])
def test_claims_with_hints_take_turns_among_many_types(engine: Engine, size: int) -> None:
    mixed(engine, types=200, rounds=8)
    hints = engine.poll(max_events=200)[0].hints
    served: Counter[str] = Counter()
    for _ in range(4):
        claims = engine.poll(max_events=size, hints=hints)
        assert len(claims) == size
        hints = claims[0].hints
        served.update(claim.type for claim in claims)
    assert len(served) == 200


@requirement("G4")
def test_a_claim_is_full_while_enough_waits_of_any_type(engine: Engine) -> None:
    engine.publish(*({"type": f"few{n}"} for n in range(90)))
    for _ in range(30):
        engine.publish(*({"type": f"more{n}"} for n in range(10)))
    claims = engine.poll(max_events=200)
    assert len(claims) == 200
    assert sum(claim.type.startswith("few") for claim in claims) == 90
    assert len(engine.poll(max_events=1000)) == 190


@requirement("G4", "G5", "G11")
@pytest.mark.parametrize("hinted", [False, True])
@pytest.mark.parametrize("size", [1, 7, 20, 64, 500])
def test_packs_and_keys_among_many_types_come_too_and_in_order(
    engine: Engine, db: Database, size: int, hinted: bool
) -> None:
    published = mixed(engine, types=20, rounds=6)
    for kind in ("t0", "t1", "packed"):
        published.setdefault(kind, []).extend(engine.publish(*[{"type": kind}] * 40))
    keyed = engine.publish(*({"type": f"t{n % 4}", "key": f"k{n % 3}"} for n in range(24)))
    urgent = engine.publish(*({"type": f"t{n}", "priority": 1} for n in range(20)))
    claimed: list[int] = []
    hints = None
    while claims := (
        engine.poll(max_events=size, hints=hints)
        or engine.poll(max_events=size, hints=hints, sweep=True)
    ):
        assert len(claims) <= size
        assert engine.finish(claims) == []
        claimed += ids(claims)
        hints = claims[0].hints if hinted else None
    everything = [id for of_type in published.values() for id in of_type] + keyed + urgent
    assert sorted(claimed) == sorted(everything)
    assert set(claimed[: len(urgent)]) == set(urgent) or hinted
    places = {id: place for place, id in enumerate(claimed)}
    for of_type in published.values():
        assert [places[id] for id in of_type] == sorted(places[id] for id in of_type)
    for n in range(3):
        turns = [places[id] for id in keyed[n::3]]
        assert turns == sorted(turns)
    check_places(db.sql)


@requirement("G1")
def test_two_claims_from_many_types_share_nothing_and_wait_for_nobody(
    engine: Engine, db: Database
) -> None:
    mixed(engine, types=60, rounds=2)
    other = Engine(db)
    with other.connection.transaction():
        mine = ids(other.poll(max_events=60))
        theirs = ids(engine.poll(max_events=60))
    assert len(mine) == len(theirs) == 60
    assert not set(mine) & set(theirs)


def test_a_claim_from_many_types_looks_at_fewer_places_than_it_takes_deliveries(
    engine: Engine,
) -> None:
    mixed(engine, types=400, rounds=4)
    hints = engine.poll(max_events=400)[0].hints
    query = "select count(*) from headrace.poll('default', max_events => 400, hints => %s)"
    [(count,)], touched = footprint(engine.connection, query, [hints])
    assert count == 400
    assert touched["ready_pkey"].scans <= 400 / 2, touched


def test_a_sweep_walks_once_over_what_a_held_snapshot_keeps(engine: Engine, db: Database) -> None:
    engine.publish({"type": "t"})
    engine.claim()
    with db.connect(autocommit=False) as holder:
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select count(*) from headrace.ready")
        for _ in range(10):
            for _ in range(50):
                engine.publish({"type": "t"})
            assert len(engine.poll(max_events=50)) == 50
        engine.publish({"type": "t"})
        query = "select count(*) from headrace.poll('default', sweep => true)"
        [(count,)], touched = footprint(engine.connection, query)
    assert count == 1
    assert 500 <= touched["ready_pkey"].entries <= 2 * 500, touched


def test_the_end_of_completed_attempts_reads_no_event(engine: Engine) -> None:
    engine.publish(*[{}] * 40)
    claims = engine.poll(max_events=20) + engine.poll(max_events=20)
    query = "select * from headrace.finish('default', 'main', %s, %s, %s)"
    mine = [claims[n] for n in range(0, 40, 2)]
    rows, touched = footprint(
        engine.connection,
        query,
        [ids(mine), [claim.attempt for claim in mine], [claim.lease for claim in mine]],
    )
    assert rows == []
    assert not [name for name in touched.relations if name.startswith("events")], touched
