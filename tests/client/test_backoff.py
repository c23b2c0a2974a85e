"""When to try again, however it is said."""

from datetime import timedelta
from typing import Any

import pytest

from headrace import EventQueue, Exponential, Fixed, InvalidInput, Linear, NewEvent
from headrace.engine.backoff import checked, policy
from headrace.model import Backoff


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        (Fixed(), {"kind": "fixed", "delay": 300}),
        (Fixed(7, jitter=0.5), {"kind": "fixed", "delay": 7, "jitter": 0.5}),
        (7, {"kind": "fixed", "delay": 7}),
        (0, {"kind": "fixed", "delay": 0}),
        (timedelta(minutes=1), {"kind": "fixed", "delay": 60}),
        (Linear(), {"kind": "linear", "delay": 60, "max_delay": 86_400}),
        (
            Linear(1, 2, timedelta(hours=1), 0.1),
            {"kind": "linear", "delay": 1, "step": 2, "max_delay": 3_600, "jitter": 0.1},
        ),
        (
            Exponential(),
            {"kind": "exponential", "delay": 5, "factor": 2, "max_delay": 3_600, "jitter": 0.1},
        ),
        (
            Exponential(timedelta(milliseconds=500), 1.5, 10, 0),
            {"kind": "exponential", "delay": 0.5, "factor": 1.5, "max_delay": 10},
        ),
        ({"kind": "fixed", "delay": 1}, {"kind": "fixed", "delay": 1}),
    ],
)
def test_a_policy_is_a_mapping_for_the_engine(backoff: Backoff, expected: Any) -> None:
    assert policy(backoff) == expected


@pytest.mark.parametrize(
    ("backoff", "problem"),
    [
        (Fixed(-1), "the delay of a backoff must be from a millisecond to a year, or 0"),
        (Fixed(0.0001), "the delay of a backoff must be from a millisecond to a year, or 0"),
        (float("inf"), "the delay of a backoff must be a number of seconds or a timedelta"),
        (timedelta(days=366), "the delay of a backoff must be from a millisecond to a year"),
        (Fixed("7"), "the delay of a backoff must be a number of seconds or a timedelta"),
        (Fixed(jitter=1.1), "the jitter of a backoff must be a number from 0 to 1"),
        (Fixed(jitter=float("nan")), "the jitter of a backoff must be a number from 0 to 1"),
        (Fixed(jitter=True), "the jitter of a backoff must be a number from 0 to 1"),
        (Fixed(jitter=0.0001), "the jitter of a backoff must be at least 0.001, or 0"),
        (Linear(step=-1), "the step of a backoff"),
        (Linear(first=10, longest=5), "the longest of a backoff is shorter than its first delay"),
        (Exponential(factor=0.5), "the factor of a backoff must be a number from 1 to 100"),
        (Exponential(factor=101), "the factor of a backoff must be a number from 1 to 100"),
        (Exponential(factor="2"), "the factor of a backoff must be a number from 1 to 100"),
        (True, "a backoff must be Fixed, Linear or Exponential, a number of seconds"),
        ("often", "a backoff must be Fixed, Linear or Exponential, a number of seconds"),
    ],
)
def test_what_is_no_policy_is_refused(backoff: Any, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        policy(backoff)


@pytest.mark.parametrize(
    "backoff",
    [
        {},
        {"kind": "never", "delay": 1},
        {"kind": ["fixed"], "delay": 1},
        {"kind": "fixed"},
        {"kind": "fixed", "delay": "1"},
        {"kind": "fixed", "delay": True},
        {"kind": "fixed", "delay": -1},
        {"kind": "fixed", "delay": 0.0001},
        {"kind": "fixed", "delay": float("nan")},
        {"kind": "fixed", "delay": 1, "step": 1},
        {"kind": "linear", "delay": 1, "factor": 1},
        {"kind": "exponential", "delay": 1, "factor": 0},
        {"kind": "exponential", "delay": 1, "jitter": 2},
        {"kind": "exponential", "delay": 1, "max_delay": 10**9},
        {"kind": "exponential", "delay": 1, "colour": 2},
        {"kind": "exponential", "delay": 1, 7: 2},
    ],
)
def test_a_mapping_is_refused_here_and_by_the_engine(asked: EventQueue, backoff: Any) -> None:
    with pytest.raises(InvalidInput):
        checked(backoff)
    with pytest.raises(InvalidInput):
        asked.publish("a", backoff=backoff)


def test_a_mapping_that_is_right_is_passed_on(asked: EventQueue) -> None:
    for given in (
        {"kind": "fixed", "delay": 1, "jitter": 1, "max_delay": 0},
        {"kind": "linear", "delay": 0, "step": 0.001},
        {"kind": "exponential", "delay": 31_536_000, "factor": 100},
    ):
        assert checked(given) is given
        assert asked.event(asked.publish("a", backoff=given).id).backoff == given
    assert checked(7) == policy(7)


@pytest.mark.parametrize(
    "backoff", [Fixed(7), 7, timedelta(seconds=7), Linear(7), Exponential(7, jitter=0)]
)
def test_an_event_may_have_any_of_them(queue: Any, backoff: Backoff) -> None:
    published = queue.publish("a", backoff=backoff)
    queue.publish_many([NewEvent("a", backoff=backoff), {"type": "a", "backoff": backoff}])
    assert published.backoff == queue.event(published.id).backoff == policy(backoff)
    for claimed in queue.poll(max_events=3):
        verdict = queue.fail(claimed, "x")
        assert verdict.retry_at - verdict.at == timedelta(seconds=7)


def test_a_queue_and_a_failure_may_have_them(queue: Any) -> None:
    queue.change_queue("main", backoff=Linear(3))
    queue.create_queue("other", backoff=9)
    assert queue.queue().backoff == policy(Linear(3))
    assert queue.queue("other").backoff == policy(Fixed(9))
    queue.publish_many([("a", {})] * 2)
    first, second = queue.poll(max_events=2)
    verdicts = queue.fail(first, "x"), queue.fail(second, "x", backoff=Exponential(5, jitter=0))
    assert [(one.retry_at - one.at).total_seconds() for one in verdicts] == [3, 5]


def test_delays_grow_as_said(queue: Any) -> None:
    queue.publish("a", backoff=Exponential(0.001, 3, 0.005, 0), max_retries=9)
    queue.publish("b", backoff=Linear(0.001, 0.003, 0.009), max_retries=9)
    for kind, expected in {"a": [1, 3, 5, 5], "b": [1, 4, 7, 9]}.items():
        delays = []
        while len(delays) < 4:
            for claimed in queue.poll(types=[kind]):
                verdict = queue.fail(claimed, "x")
                delays.append((verdict.retry_at - verdict.at) / timedelta(milliseconds=1))
            queue.tick()
        assert delays == expected
