"""why, where limits, turns, snoozes, debounce and redrives are the reason; and what is said together."""

import pytest

from tests.database import Database
from tests.engine.functions_helpers import Engine, stop_the_clock
from tests.engine.limits_helpers import change
from tests.engine.test_why import codes, node, only, why


@pytest.fixture
def engine(db: Database) -> Engine:
    stop_the_clock(db)
    engine = Engine(db)
    node(engine, ["*"])
    return engine


def test_a_full_limit_names_the_events_that_have_its_slots(engine: Engine) -> None:
    limit = {"scope": "tag", "prefix": "tenant:", "at_once": 1}
    change(engine, limits=[limit])
    [first, second] = engine.publish({"tags": ["tenant:a"]}, {"tags": ["tenant:a"]})
    [other] = engine.publish({"tags": ["tenant:b"]})
    assert codes(engine, second) == ["in_line"]
    [claim] = engine.poll(max_events=1, tags=["tenant:a"])
    assert claim.id == first
    one = only(engine, second)
    assert one.code == "limited"
    assert (
        one.message == f"the limit of tag 'tenant:a' is full: 1 of 1 are in progress: event {first}"
    )
    assert one.about == {
        "scope": "tag",
        "name": "tenant:a",
        "at_once": 1,
        "in_progress": 1,
        "held_by": [first],
    }
    assert codes(engine, other) == ["in_line"]
    engine.finish([claim])
    assert codes(engine, second) == ["in_line"]


def test_a_rate_that_is_used_up_says_when_the_next_one_starts(engine: Engine) -> None:
    change(engine, limits=[{"scope": "queue", "rate": 1, "per": 60}])
    [_, second] = engine.publish({}, {})
    [_] = engine.poll(max_events=5)
    one = only(engine, second)
    assert (one.code, one.about["rate"], one.about["per"]) == ("limited", 1, 60)
    assert one.until is not None
    change(engine, limits=None)
    assert codes(engine, second) == ["in_line"]


def test_a_snoozed_delivery_says_until_when(engine: Engine) -> None:
    [id] = engine.publish({})
    [claim] = engine.poll(max_events=1)
    engine.finish([claim], {"1": {"action": "release", "delay": 30}})
    one = only(engine, id)
    assert (one.code, one.until) == ("snoozed", engine.event(id).next_retry_at)


def test_a_superseded_delivery_names_its_successor(engine: Engine) -> None:
    [first] = engine.publish({"debounce": "k", "settle": 5})
    [second] = engine.publish({"debounce": "k", "settle": 5})
    one = only(engine, first)
    assert (one.code, one.about["superseded_by"]) == ("ended", second)
    assert one.message == f"event {second} of its debounce key took its place"


def test_a_superseded_delivery_that_was_run_again_has_ended_as_it_has(engine: Engine) -> None:
    [first] = engine.publish({"debounce": "k", "settle": 5})
    engine.publish({"debounce": "k", "settle": 5})
    engine.call("rerun", namespace="default", event_id=first)
    assert codes(engine, first) == ["in_line"]
    engine.finish(engine.poll(max_events=1))
    one = only(engine, first)
    assert (one.code, one.about["status"]) == ("ended", "COMPLETED")
    assert one.about.keys().isdisjoint({"superseded_by"})


def test_a_redrive_at_a_rate_is_a_delay(engine: Engine) -> None:
    ids = engine.publish({}, {})
    for claim in engine.poll(max_events=2):
        engine.finish([claim], {"1": {"action": "fail", "error": "no", "max_retries": 0}})
    engine.call("redrive", namespace="default", queue="main", rate=0.1)
    one = only(engine, ids[1])
    assert (one.code, one.until) == ("delayed", engine.event(ids[1]).next_retry_at)
    assert one.message.startswith("it was redriven at a rate, and is delayed until ")


def test_what_waits_for_a_full_limit_is_not_before_those_that_do_not(engine: Engine) -> None:
    change(engine, limits=[{"scope": "tag", "prefix": "tenant:", "at_once": 3}])
    engine.publish(*[{"tags": ["tenant:big"], "priority": 1}] * 50)
    small = engine.publish(*[{"tags": ["tenant:small"]}] * 3)
    assert only(engine, small[2]).about["ahead"] == 3 + 2
    assert len(engine.poll(max_events=10, tags=["tenant:big"])) == 3
    assert [only(engine, id).about["ahead"] for id in small] == [0, 1, 2]
    claimed = [one.id for one in engine.poll(max_events=10)]
    assert claimed == small


def test_a_limit_of_the_whole_queue_is_one_for_all_that_go_first(engine: Engine) -> None:
    change(engine, limits=[{"scope": "queue", "at_once": 4}])
    engine.publish(*[{"type": "a", "priority": 1}] * 50)
    engine.publish(*[{"type": "b", "priority": 1}] * 50)
    [last] = engine.publish({})
    assert only(engine, last).about["ahead"] == 100
    engine.poll(max_events=10)
    assert codes(engine, last) == ["limited"]


def test_under_fair_by_others_go_first_by_their_groups(engine: Engine) -> None:
    change(engine, fair_by={"tag": "tenant:"})
    for n in range(20):
        engine.publish(*[{"type": f"t{n}", "tags": ["tenant:big"]}] * 5)
    small = engine.publish(*[{"tags": ["tenant:small"]}] * 3)
    assert [only(engine, id).about["ahead"] for id in small] == [1, 3, 5]


def test_every_reason_that_holds_is_said_in_their_order(engine: Engine) -> None:
    """In a paused queue, behind a full limit and an event of its key."""
    change(engine, limits=[{"scope": "queue", "at_once": 1}])
    [first] = engine.publish({"key": "k"})
    engine.claim()
    [second] = engine.publish({"key": "k", "type": "other"})
    engine.call("pause", namespace="default", queue="main")
    assert codes(engine, second) == ["queue_paused", "limited", "key_in_progress"]
    engine.call("resume", namespace="default", queue="main")
    [limited, keyed] = why(engine, second)
    assert (limited.about["held_by"], keyed.about["event"]) == ([first], first)
    change(engine, limits=None)
    assert codes(engine, second) == ["key_in_progress"]


def test_a_snoozed_event_in_a_paused_queue_waits_for_both(engine: Engine) -> None:
    change(engine, limits=[{"scope": "queue", "at_once": 1}])
    snoozed, _ = engine.publish({}, {})
    engine.finish([engine.claim()], {"1": {"action": "release", "delay": 30}})
    engine.claim()
    engine.call("pause", namespace="default", queue="main")
    assert codes(engine, snoozed) == ["snoozed", "queue_paused"]
