"""Releases are never counted, but what is released again and again comes back later and later; a lost connection is no release."""

from typing import Any

import pytest

from tests.database import Database
from tests.engine.functions_helpers import Engine, stop_the_clock
from tests.requirements import requirement

RELEASE = {"action": "release"}
ABANDON = {"action": "abandon", "error": "the connection was lost", "last_reason": "Lost"}
DELAYS = (
    "select extract(epoch from due_at - headrace._now())::int from headrace.delayed order by event"
)


@pytest.fixture
def engine(db: Database) -> Engine:
    stop_the_clock(db)
    return Engine(db)


def delay_after(engine: Engine, action: dict[str, Any] = RELEASE, **options: Any) -> int:
    """End the next attempt so; how many seconds later it may be claimed again. It may be, afterwards."""
    engine.finish([engine.claim(**options)], {"1": action})
    delays = [delay for (delay,) in engine.db.sql(DELAYS)]
    engine.db.advance(seconds=delays[0] if delays else 0)
    engine.tick()
    return delays[0] if delays else 0


@requirement("G9")
@pytest.mark.parametrize("each", [False, True])
def test_releases_in_a_row_come_back_later_and_later(engine: Engine, each: bool) -> None:
    [id] = engine.publish({"max_retries": 1})
    delays = [delay_after(engine, each=each) for _ in range(9)]
    assert delays == [0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert (engine.event(id).retry_count, engine.event(id).crashes) == (0, 0)


@requirement("G9")
def test_another_end_begins_the_row_of_releases_anew(engine: Engine) -> None:
    engine.publish({"max_retries": 9})
    retry = {"action": "fail", "error": "no", "retry_in": 0}
    assert [delay_after(engine) for _ in range(3)] == [0, 1, 2]
    assert delay_after(engine, retry) == 0
    assert [delay_after(engine) for _ in range(3)] == [0, 1, 2]
    engine.finish([engine.claim()], {"1": ABANDON})
    assert [delay_after(engine) for _ in range(3)] == [0, 1, 2]


@requirement("G9")
def test_saved_progress_begins_the_row_of_releases_anew(engine: Engine) -> None:
    engine.publish({})
    assert [delay_after(engine) for _ in range(3)] == [0, 1, 2]
    assert delay_after(engine, {**RELEASE, "progress": {"done": 1}}) == 0
    assert [delay_after(engine, {**RELEASE, "progress": {"done": 1}}) for _ in range(2)] == [1, 2]
    assert delay_after(engine, {**RELEASE, "progress": {"done": 2}}) == 0
    claim = engine.claim()
    engine.call(
        "save_progress", namespace="default", event=claim.id, attempt=claim.attempt, progress="3"
    )
    engine.finish([claim], {"1": RELEASE})
    assert engine.db.sql(DELAYS) == []
    assert delay_after(engine) == 1


@requirement("G9")
def test_of_many_that_are_released_together_each_has_its_own_delay(engine: Engine) -> None:
    engine.publish(*[{}] * 3)
    first, second, third = engine.poll(max_events=3)
    engine.finish([second], {"1": RELEASE})
    engine.finish([engine.claim(), first, third], {str(n): RELEASE for n in (1, 2, 3)})
    assert engine.db.sql("select event from headrace.delayed") == [(second.id,)]
    engine.finish(engine.poll(max_events=2), {"1": RELEASE})
    assert engine.db.sql(DELAYS) == [(1,), (1,)]


@requirement("G9")
def test_what_is_released_with_a_delay_keeps_its_ordering_key(engine: Engine) -> None:
    first, _ = engine.publish({"key": "k"}, {"key": "k"})
    for _ in range(2):
        engine.finish([engine.claim(each=True)], {"1": RELEASE})
    assert engine.poll(max_events=2) == [], "the second one would overtake it"
    engine.db.advance(seconds=1)
    assert engine.claim().id == first


@requirement("G9")
def test_a_claim_that_was_lost_with_its_connection_makes_a_suspect_and_then_is_charged(
    engine: Engine,
) -> None:
    poison, *others = engine.publish(*[{"max_retries": 1}] * 3)
    together = engine.poll(max_events=3)
    answers = engine.finish(together, {str(n): ABANDON for n in (1, 2, 3)})
    assert [(row.verdict, row.action) for row in answers] == [("counted", "ABANDONED")] * 3
    repeated = engine.finish(together, {str(n): ABANDON for n in (1, 2, 3)})
    assert [row.verdict for row in repeated] == ["repeated"] * 3

    alone = engine.claim(max_events=3, worker="a")
    assert (alone.id, alone.crashes) == (poison, 0)
    engine.finish([alone], {"1": ABANDON})
    letter = engine.dead_letter(poison)
    assert (letter.reason, letter.error, letter.attempts, letter.crashes) == (
        "Lost",
        "the connection was lost",
        2,
        1,
    )
    for id in others:
        claim = engine.claim(worker="a")
        assert (claim.id, claim.crashes) == (id, 0)
        engine.end("complete", claim)


@requirement("G9")
@pytest.mark.parametrize(("given", "starts"), [(0, 2), (1, 2), (3, 4)])
def test_a_claim_that_always_loses_its_connection_starts_so_often_and_no_more(
    engine: Engine, given: int, starts: int
) -> None:
    [id] = engine.publish({"max_retries": given})
    for _ in range(starts):
        engine.finish([engine.claim(worker="a")], {"1": ABANDON})
    assert engine.event(id).status == "FAILED"
    assert engine.poll() == []


@requirement("G9")
def test_the_policy_of_the_handler_counts_for_a_lost_connection(engine: Engine) -> None:
    [id] = engine.publish({})
    for _ in range(2):
        engine.finish([engine.claim(worker="a")], {"1": {**ABANDON, "max_retries": 1}})
    assert engine.event(id).status == "FAILED"


def test_what_is_released_again_and_again_needs_attention(engine: Engine) -> None:
    [id] = engine.publish({"type": "a"})
    for _ in range(4):
        delay_after(engine)
    found: list[Any] = []
    for _ in range(2):
        engine.finish([engine.claim()], {"1": RELEASE})
        found.append(
            [
                (one.level, one.queue, one.about)
                for one in engine.call("attention", namespace="default")
                if one.code == "released_often"
            ]
        )
        engine.db.advance(seconds=60)
        engine.tick()
    assert found == [
        [("warning", "main", {"event": id, "type": "a", "times": times})] for times in (5, 6)
    ]
