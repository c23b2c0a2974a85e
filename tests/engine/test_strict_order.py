"""A queue of strict order hands out the lowest (priority, event id) of all that is ready and matches, whoever asks."""

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.database import STRIDE, Database
from tests.engine.functions_helpers import Engine, refused
from tests.engine.races_helpers import Session, blocked
from tests.requirements import requirement

PICKED = "select event_id from headrace.event_log where action = 'PICKED' order by id"


@pytest.fixture
def engine(db: Database) -> Engine:
    made = Engine(db)
    order(made, "oldest")
    return made


def order(engine: Engine, how: str | None) -> None:
    engine.call("change_queue", namespace="default", queue="main", settings=Jsonb({"order": how}))


def handed_out(db: Database) -> list[int]:
    """The events in the order of their hand-out."""
    return [event for (event,) in db.sql(PICKED)]


@requirement("EQ-7", "EB-6")
def test_next_is_the_oldest_of_all_types_and_tags(engine: Engine, db: Database) -> None:
    kinds: list[dict[str, Any]] = [
        {"type": "b"},
        {"type": "a", "tags": ["x"]},
        {"type": "c"},
        {"type": "a"},
        {"type": "a", "tags": ["x", "y"]},
        {"type": "b"},
    ]
    ids = [id for kind in kinds * 3 for id in engine.publish(kind)]
    assert [engine.claim().id for _ in range(4)] == ids[:4]
    assert [claim.id for claim in engine.poll(7)] == ids[4:11]
    [together] = engine.call("poll_batch", namespace="default", max_events=2)
    assert together.ids == ids[11:13]
    assert [engine.claim(worker="other").id for _ in range(5)] == ids[13:]
    assert engine.poll() == []
    assert handed_out(db) == ids


def test_a_more_urgent_priority_comes_first(engine: Engine) -> None:
    late = engine.publish(*({"type": t, "priority": 7} for t in "ab"))
    usual = engine.publish(*({"type": t} for t in "cab"))
    urgent = engine.publish(*({"type": t, "priority": 1} for t in "ba"))
    assert engine.claim().id == urgent[0]
    assert [claim.id for claim in engine.poll(4)] == [urgent[1], *usual]
    assert [claim.id for claim in engine.poll(4)] == late


def test_only_what_matches_is_handed_out(engine: Engine) -> None:
    a1, b1, c1, a2, b2 = (
        engine.publish({"type": type, "tags": tags})[0]
        for type, tags in [("a.x", []), ("b", ["t"]), ("c", []), ("a.y", ["t"]), ("b", [])]
    )
    assert [claim.id for claim in engine.poll(9, types=["a.*", "b"], tags=["t"])] == [b1, a2]
    assert engine.claim(types=["b", "c"]).id == c1
    assert [claim.id for claim in engine.poll(9)] == [a1, b2]


@pytest.mark.parametrize("size", [1, 3, 50, 1000])
def test_what_was_published_together_is_told_apart(engine: Engine, db: Database, size: int) -> None:
    """Packs of several types, and of one type by publishers at the same moment, whose ids alternate."""
    db.sql(f"alter sequence headrace.ids increment by {3 * STRIDE}")
    [(start,)] = db.sql("select last_value from headrace.ids")
    for offset, type in enumerate("aab"):
        db.sql("select setval('headrace.ids', %s)", [start + (1000 + offset) * STRIDE])
        engine.publish(*({"type": type} for _ in range(100)))
    db.sql(f"alter sequence headrace.ids increment by {STRIDE}")
    db.sql("select setval('headrace.ids', %s)", [start + 5000 * STRIDE])
    ids = [id for (id,) in db.sql("select id from headrace.events order by id")]
    assert len(ids) == 300
    assert db.sql("select count(*) > 0 from headrace.ready where pack is not null") == [(True,)]
    told = []
    while claims := engine.poll(size):
        told += [claim.id for claim in claims]
        if size == 1:
            engine.end("complete", claims[0])
    assert told == ids
    assert handed_out(db) == ids


def test_what_comes_back_keeps_the_place_of_its_id(engine: Engine, db: Database) -> None:
    ids = engine.publish(*({"type": type} for type in "abcab"))
    first, second, third = (engine.claim(lease="1 hour") for _ in range(3))
    engine.end("fail", second, retry_in="0")
    assert engine.claim(lease="1 hour").id == ids[1]
    engine.end("release", third)
    engine.end("fail", first, retry_in="1 minute")
    assert [claim.id for claim in engine.poll(2, lease="1 hour")] == [ids[2], ids[3]]
    db.advance(seconds=61)
    engine.tick()
    assert [claim.id for claim in engine.poll(9)] == [ids[0], ids[4]]


def test_a_delay_that_is_over_leaves_its_place(engine: Engine, db: Database) -> None:
    [delayed] = engine.publish({"type": "a", "delay": 60})
    [one] = engine.publish({"type": "b"})
    [other] = engine.publish({"type": "a"})
    assert engine.claim(lease="1 hour").id == one
    db.advance(seconds=61)
    engine.tick()
    assert [claim.id for claim in engine.poll(9)] == [delayed, other]


def test_keys_in_work_are_passed_by(engine: Engine) -> None:
    k1, a1, k2, l1, b1, l2 = (
        engine.publish({"type": type} | ({"key": key} if key else {}))[0]
        for type, key in [("a", "k"), ("a", None), ("b", "k"), ("b", "l"), ("b", None), ("a", "l")]
    )
    held = engine.claim()
    assert held.id == k1
    assert [claim.id for claim in engine.poll(3)] == [a1, l1, b1]
    assert engine.poll() == []
    engine.end("fail", held, retry_in="0")
    again = engine.claim()
    assert (again.id, again.attempt) == (k1, 2)
    engine.end("complete", again)
    assert engine.claim().id == k2
    assert l2 not in [claim.id for claim in engine.poll(9)]


def test_useless_tokens_do_not_pile_up(engine: Engine, db: Database) -> None:
    for n in range(300):
        engine.publish({"type": "a", "key": f"k{n % 7}"})
    for _ in range(300):
        engine.end("complete", engine.claim())
    engine.publish({"type": "a"})
    engine.claim()
    engine.poll()
    assert db.sql("select count(*) < 20 from headrace.ready") == [(True,)]


def test_a_suspect_comes_alone_in_its_place(engine: Engine, db: Database) -> None:
    ids = engine.publish(*({"type": type} for type in "abab"))
    engine.poll(2, worker="dead")
    db.advance(seconds=61)
    engine.tick()
    [suspect] = engine.poll(9, worker="w")
    assert suspect.id == ids[0]
    # It has one suspect in work, so it gets no other: what is ready for it comes after.
    assert [claim.id for claim in engine.poll(9, worker="w")] == ids[2:]
    assert [claim.id for claim in engine.poll(9, worker="v")] == [ids[1]]


def test_without_suspects_the_others_are_handed_out(engine: Engine, db: Database) -> None:
    ids = engine.publish(*({"type": type} for type in "abab"))
    engine.poll(2, worker="dead")
    db.advance(seconds=61)
    engine.tick()
    assert [claim.id for claim in engine.poll(9, suspects=False)] == ids[2:]


def test_a_suspect_ends_the_claim_before_it(engine: Engine, db: Database) -> None:
    [first] = engine.publish({"type": "a", "delay": 1})
    [poison] = engine.publish({"type": "b"})
    [last] = engine.publish({"type": "c"})
    engine.claim(types=["b"], worker="dead")
    db.advance(seconds=61)
    engine.tick()
    assert [claim.id for claim in engine.poll(9, worker="w")] == [first]
    assert [claim.id for claim in engine.poll(9, worker="w")] == [poison]
    assert [claim.id for claim in engine.poll(9, worker="w")] == [last]


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_claim_waits_for_the_one_before_it(engine: Engine, db: Database, end: str) -> None:
    ids = engine.publish(*({"type": type} for type in "abc"))
    one, other = Session(db), Session(db)
    one.begin()
    assert [claim.id for claim in one.poll()] == [ids[0]]
    waiting = blocked(db, other, other.poll)
    getattr(one, end)()
    claimed = waiting.result() or other.poll()  # a slow machine may have it give up
    assert [claim.id for claim in claimed] == [ids[1] if end == "commit" else ids[0]]


def test_a_claim_does_not_wait_for_ever(engine: Engine, db: Database) -> None:
    engine.publish({"type": "a"}, {"type": "b"})
    one, other = Session(db), Session(db)
    one.begin()
    one.poll()
    assert other.poll() == []
    one.commit()
    assert len(other.poll()) == 1


def test_claims_pass_by_what_is_being_cancelled(engine: Engine, db: Database) -> None:
    ids = engine.publish(*({"type": type} for type in "ab"))
    admin = Session(db)
    admin.begin()
    admin.sql("select headrace.cancel('default', %s)", [ids[0]])
    assert engine.claim().id == ids[1]
    admin.rollback()
    assert engine.claim().id == ids[0]


@pytest.mark.parametrize("size", [1, 4])
def test_many_workers_get_them_in_order(engine: Engine, db: Database, size: int) -> None:
    chance = random.Random(size)
    ids = [
        id
        for _ in range(30)
        for id in engine.publish(*[{"type": chance.choice("abcde")}] * chance.choice([1, 2, 20]))
    ]

    def work(number: int) -> list[list[int]]:
        session, mine = Session(db), []
        while len(handed_out(db)) < len(ids):
            claims = session.poll(size, worker=f"w{number}")
            mine.append([claim.id for claim in claims])
            session.finish(claims)
        return mine

    with ThreadPoolExecutor(4) as workers:
        got = [one for mine in workers.map(work, range(4)) for one in mine if one]
    assert handed_out(db) == sorted(ids)
    assert all(one == sorted(one) for one in got)
    assert sorted(id for one in got for id in one) == sorted(ids)


class Model:
    """A queue of strict order in a dict."""

    def __init__(self, engine: Engine, chance: random.Random) -> None:
        self.engine = engine
        self.chance = chance
        self.events: dict[int, tuple[int, str | None]] = {}  # priority and key
        self.ready: set[int] = set()
        self.held: dict[int, Any] = {}

    def claimable(self) -> list[int]:
        keys = {self.events[id][1] for id in self.held} - {None}
        found = []
        for id in sorted(self.ready):
            _, key = self.events[id]
            if key is None or key not in keys:
                found.append(id)
            keys.add(key)
        return sorted(found, key=lambda id: (self.events[id][0], id))

    def publish(self) -> None:
        choose = self.chance.choice
        priority, key = choose([5, 5, 5, 1]), choose([None, None, "k", "l"])
        event = {"type": choose("abc"), "priority": priority} | ({"key": key} if key else {})
        ids = self.engine.publish(*[event] * choose([1, 3, 40]))
        self.events |= dict.fromkeys(ids, (priority, key))
        self.ready |= set(ids)

    def claim(self) -> None:
        size = self.chance.choice([1, 2, 30])
        expected = self.claimable()[:size]
        claims = self.engine.poll(size, each=True)
        assert [claim.id for claim in claims] == expected
        self.held |= {claim.id: claim for claim in claims}
        self.ready -= set(expected)

    def end(self) -> None:
        for id in self.chance.sample(sorted(self.held), min(len(self.held), 5)):
            claim = self.held.pop(id)
            if self.chance.random() < 0.5:
                self.engine.end("complete", claim)
            elif self.engine.end("fail", claim, retry_in="0") is not None:
                self.ready.add(id)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_the_lowest_comes_first(engine: Engine, seed: int) -> None:
    model = Model(engine, random.Random(seed))
    for _ in range(60):
        getattr(model, model.chance.choice(["publish", "claim", "claim", "end"]))()


def test_a_queue_changes_its_order_at_any_time(engine: Engine) -> None:
    ids = engine.publish(
        *({"type": type, "key": key} for type, key in zip("abcabc", "kl" * 3, strict=True))
    )
    assert engine.claim().id == ids[0]
    order(engine, None)
    [queue] = engine.call("queue", namespace="default", queue="main")
    assert queue.order == "fair"
    first = engine.claim()
    assert first.id == ids[1]
    engine.end("complete", first)
    order(engine, "oldest")
    assert engine.claim().id == ids[3]
    assert engine.poll() == [], "both keys are in work"


@pytest.mark.parametrize("wrong", ["newest", "", 1, True, ["oldest"]])
def test_there_are_two_orders(engine: Engine, wrong: Any) -> None:
    with refused("QU001", "the order of a queue is fair or oldest"):
        order(engine, wrong)


COST = "explain (analyze, buffers, format json) select * from headrace.poll('default', lease => '1 day')"


def pages(db: Database) -> int:
    """How many a claim of one event reads."""
    [([told],)] = db.sql(COST)
    return int(told["Plan"]["Shared Hit Blocks"]) + int(told["Plan"]["Shared Read Blocks"])


@pytest.mark.new_database
def test_a_claim_costs_by_the_route_and_not_by_what_waits(engine: Engine, db: Database) -> None:
    for _ in range(20):
        engine.publish(*({"type": f"t{n % 4}"} for n in range(100)))
    claims = engine.poll(400, lease="1 day")
    engine.finish(claims, {str(n): {"action": "fail", "retry_in": 0} for n in range(1, 401)})
    db.sql("vacuum analyze headrace.ready, headrace.events")
    pages(db)  # what a session reads once
    few = pages(db)
    for _ in range(100):
        engine.publish(*({"type": f"t{n % 4}"} for n in range(100)))
    more = pages(db)
    assert more < few + 100, "what is behind the first is not read"
