"""A claim is proved: by the name of its worker where one is said, and by a token that nobody can guess."""

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.database import Database
from tests.engine.functions_helpers import Engine, contents, differences, refused, stop_the_clock
from tests.requirements import requirement

WRONG = "00000000-0000-4000-8000-000000000000"
FAIL = Jsonb({"1": {"action": "fail", "error": "no"}})
REQUIRED = "requires the lease_token"


@pytest.fixture
def engine(db: Database) -> Engine:
    stop_the_clock(db)
    return Engine(db)


@pytest.fixture
def strict(engine: Engine) -> Engine:
    """A queue that requires tokens."""
    engine.call("change_queue", namespace="default", queue="main",
                settings=Jsonb({"require_lease_token": True}))  # fmt: skip
    return engine


def claim(engine: Engine, size: int = 1, *, each: bool, worker: str = "w1") -> list[Any]:
    engine.publish(*[{}] * size)
    claimed = engine.poll(size, each=each, worker=worker)
    assert len(claimed) == size
    return claimed


def finish(
    engine: Engine, *claims: Any, tokens: list[str | None] | None, **given: Any
) -> list[Any]:
    return engine.call(
        "finish", namespace="default", queue="main", events=[one.id for one in claims],
        attempts=[one.attempt for one in claims], lease_tokens=tokens, **given,
    )  # fmt: skip


def report(engine: Engine, claim: Any, worker: str | None, token: str | None = None) -> str:
    [row] = engine.call(
        "report", namespace="default", queue="main", events=[claim.id], attempts=[claim.attempt],
        workers=[worker], lease_tokens=[token],
    )  # fmt: skip
    return str(row.verdict)


def token_of(claim: Any) -> str:
    return str(claim.lease_token)


held_or_batch = pytest.mark.parametrize("each", [True, False], ids=["held", "batch"])


@held_or_batch
def test_a_lease_has_one_token_and_no_other_lease_has_it(engine: Engine, each: bool) -> None:
    tokens = [{token_of(one) for one in claim(engine, 5, each=each)} for _ in range(20)]
    assert all(len(of_one) == 1 for of_one in tokens)
    assert len(set.union(*tokens)) == 20
    assert all(re.fullmatch(r"[0-9a-f-]{36}", token) for token in set.union(*tokens))


def test_the_token_is_seen_by_its_claimer_alone(engine: Engine, db: Database) -> None:
    [mine] = claim(engine, each=True)
    told = [
        db.sql("select * from headrace.event_queue"),
        db.sql("select * from headrace.event_log"),
        engine.event(mine.id),
        engine.call("workers", namespace="default"),
    ]
    assert token_of(mine) not in str(told)


@requirement("G6")
@held_or_batch
def test_another_worker_does_not_end_a_claim_by_its_attempt(
    engine: Engine, db: Database, each: bool
) -> None:
    [mine] = claim(engine, each=each)
    before = contents(db)
    assert report(engine, mine, "w2") == "lost"
    assert differences(before, contents(db)) == set()
    assert report(engine, mine, "w1") == "counted"
    assert report(engine, mine, "w1") == "repeated"
    assert report(engine, mine, "w2") == "lost"
    assert report(engine, mine, None) == "repeated"


@held_or_batch
def test_one_who_is_not_the_holder_does_not_spoil_the_others(engine: Engine, each: bool) -> None:
    first, second = claim(engine, 2, each=each)
    rows = engine.call(
        "report", namespace="default", queue="main", events=[first.id, second.id],
        attempts=[1, 1], workers=["w2", "w1"],
    )  # fmt: skip
    assert sorted((row.item, row.verdict) for row in rows) == [(1, "lost"), (2, "counted")]


@held_or_batch
def test_another_worker_neither_starts_nor_keeps_a_claim(engine: Engine, each: bool) -> None:
    [mine] = claim(engine, each=each)
    named = {"namespace": "default", "event": mine.id, "attempt": 1}
    with refused("QU020"):
        engine.call("start", **named, worker="w2")
    assert [row.state for row in engine.call("heartbeat", **named, worker="w2")] == ["lost"]
    assert [row.state for row in engine.call("heartbeat", **named, worker="w1")] == ["held"]
    engine.call("start", **named, worker="w1")


@held_or_batch
@pytest.mark.parametrize("others", [None, FAIL], ids=["complete", "fail"])
def test_a_token_that_is_sent_must_fit(
    engine: Engine, db: Database, each: bool, others: Any
) -> None:
    [mine], [other] = claim(engine, each=each), claim(engine, each=each, worker="w2")
    before = contents(db)
    for wrong in (WRONG, token_of(other), "", "no token at all"):
        for leases in (None, [mine.lease], [other.lease]):
            [row] = finish(engine, mine, tokens=[wrong], others=others, leases=leases)
            assert row.verdict == "lost"
        assert report(engine, mine, None, wrong) == "lost"
    assert differences(before, contents(db)) == set()
    rows = finish(engine, mine, tokens=[token_of(mine)], others=others)
    assert [row.verdict for row in rows] == ([] if others is None else ["counted"])


@held_or_batch
def test_one_token_stands_for_all_that_was_claimed_together(engine: Engine, each: bool) -> None:
    mine = claim(engine, 5, each=each)
    leases = None if each else [one.lease for one in mine]
    lost = finish(engine, *mine, tokens=[WRONG], leases=leases)
    assert [row.verdict for row in lost] == ["lost"] * 5
    assert finish(engine, *mine, tokens=[token_of(mine[0])], leases=leases) == []


@held_or_batch
def test_of_many_those_whose_token_fits_are_ended(engine: Engine, each: bool) -> None:
    mine = claim(engine, 3, each=each)
    tokens = [token_of(mine[0]), WRONG, token_of(mine[2])]
    rows = finish(engine, *mine, tokens=tokens)
    assert [(row.item, row.verdict) for row in rows] == [(2, "lost")]


def test_the_quick_ways_want_the_token_too(engine: Engine) -> None:
    [held], batch = claim(engine, each=True), claim(engine, 3, each=False)
    one = {"namespace": "default", "queue": "main", "event": held.id, "attempt": 1}
    all_ = {"namespace": "default", "queue": "main", "lease": batch[0].lease, "size": 3}
    for function, named, mine in (("complete_held", one, held), ("complete_lease", all_, batch[0])):
        assert engine.call(function, **named, lease_token=WRONG) == [(False,)]
        assert engine.call(function, **named, lease_token=token_of(mine)) == [(True,)]


@held_or_batch
def test_a_wrong_token_extends_nothing_and_saves_nothing(engine: Engine, each: bool) -> None:
    [mine] = claim(engine, each=each)
    named = {"namespace": "default", "queue": "main", "leases": [mine.lease]}
    [wrong] = engine.call("extend", **named, lease_tokens=[WRONG])
    [right] = engine.call("extend", **named, lease_tokens=[token_of(mine)])
    assert (wrong.state, right.state) == ("lost", "held")
    progress = {"namespace": "default", "event": mine.id, "attempt": 1, "progress": Jsonb(7)}
    with refused("QU020"):
        engine.call("save_progress", **progress, lease_token=WRONG)
    engine.call("save_progress", **progress, lease_token=token_of(mine))


@held_or_batch
@pytest.mark.parametrize("function", ["complete", "fail", "release", "finalize"])
def test_the_calls_for_one_take_the_token(engine: Engine, each: bool, function: str) -> None:
    [mine] = claim(engine, each=each)
    named = {"namespace": "default", "event": mine.id, "attempt": 1}
    given = {"error": "no"} if function == "fail" else {}
    with refused("QU020"):
        engine.call(function, **named, **given, lease_token=WRONG)
    engine.call(function, **named, **given, lease_token=token_of(mine))


@held_or_batch
def test_a_queue_that_requires_tokens_refuses_to_go_without(
    strict: Engine, db: Database, each: bool
) -> None:
    mine, batch = claim(strict, each=each)[0], claim(strict, 2, each=each)
    one = {"namespace": "default", "event": mine.id, "attempt": 1}
    named = {"namespace": "default", "queue": "main"}
    before = contents(db)
    for leases in (None, [mine.lease]):
        with refused("QU001", REQUIRED):
            finish(strict, mine, tokens=None, leases=leases)
    with refused("QU001", REQUIRED):
        finish(strict, *batch, tokens=[token_of(batch[0]), None])
    for function, given in {
        "complete": {}, "fail": {"error": "no"}, "release": {}, "finalize": {},
        "start": {}, "heartbeat": {"worker": "w1"}, "save_progress": {"progress": Jsonb(1)},
    }.items():  # fmt: skip
        with refused("QU001", REQUIRED):
            strict.call(function, **one, **given)
    with refused("QU001", REQUIRED):
        report(strict, mine, "w1")
    with refused("QU001", REQUIRED):
        strict.call("extend", **named, leases=[mine.lease])
    lease = {**named, "lease": batch[0].lease, "size": 2}
    assert strict.call("complete_lease", **lease) == [(False,)]
    held = {**named, "event": mine.id, "attempt": 1}
    assert strict.call("complete_held", **held) == [(False,)]
    assert differences(before, contents(db)) == set()

    assert finish(strict, mine, tokens=[token_of(mine)]) == []
    assert report(strict, batch[0], "w1", token_of(batch[0])) == "counted"
    # What has ended can be asked for again: nothing is changed by it.
    assert [row.verdict for row in finish(strict, mine, tokens=None)] == ["repeated"]


def test_whether_a_queue_requires_tokens_is_a_setting(engine: Engine) -> None:
    def change(value: Any) -> bool:
        engine.call("change_queue", namespace="default", queue="main",
                    settings=Jsonb({"require_lease_token": value}))  # fmt: skip
        [queue] = engine.call("queue", namespace="default")
        return bool(queue.require_lease_token)

    assert change(True)
    assert not change(None)
    with refused("QU001", "true or false"):
        change("yes")


@requirement("G6")
@pytest.mark.parametrize("call", ["finish", "report"])
@pytest.mark.parametrize("each", [True, False], ids=["held", "batch"])
def test_a_claim_that_is_made_while_an_end_waits_is_not_ended_by_it(
    strict: Engine, db: Database, call: str, each: bool
) -> None:
    """The end begins when the second delivery is nobody's, and waits for somebody who has the first one locked."""
    [first] = claim(strict, each=True, worker="evil")
    [second] = strict.publish({})
    holder, evil = Engine(db), Engine(db)
    holder.connection.autocommit = False
    holder.call(
        "complete_held",
        namespace="default",
        queue="main",
        event=first.id,
        attempt=1,
        lease_token=token_of(first),
    )
    given: dict[str, Any] = {
        "events": [first.id, second],
        "attempts": [1, 1],
        "lease_tokens": [token_of(first), None],
    }
    if call == "report":
        given["workers"] = ["evil", None]
    with ThreadPoolExecutor(1) as threads:
        ending = threads.submit(evil.call, call, namespace="default", queue="main", **given)
        db.wait_until_blocked(evil.connection)
        [victims] = strict.poll(each=each, worker="victim", types=["event"])
        assert victims.id == second
        holder.connection.rollback()
        verdicts = {row.item: row.verdict for row in ending.result()}
    assert verdicts.get(2) == "lost"
    assert finish(strict, victims, tokens=[token_of(victims)]) == []
