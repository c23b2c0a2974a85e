"""Limits that cannot be meant are refused in one sentence, and nothing is stored."""

from typing import Any

import pytest

from tests.database import Database
from tests.engine.functions_helpers import Engine, contents, differences, refused
from tests.engine.limits_helpers import change

TAG = {"scope": "tag", "prefix": "tenant:"}
WRONG: dict[str, tuple[Any, str]] = {
    "no list": ({"scope": "queue"}, "are a list of at most 100 limits"),
    "too many": ([{"scope": "type", "match": f"t{n}", "at_once": 1} for n in range(101)], "at most 100 limits"),
    "no object": ([5], "a limit is an object"),
    "unknown field": ([{"scope": "queue", "at_most": 5}], "a limit has no field 'at_most'"),
    "unknown scope": ([{"scope": "tenant", "at_once": 5}], "the scope of a limit is queue, type, tag or key"),
    "no scope": ([{"at_once": 5}], "the scope of a limit is queue, type, tag or key"),
    "a prefix of the queue": ([{"scope": "queue", "prefix": "a", "at_once": 5}], "scope queue has no match and no prefix"),
    "no tag": ([{"scope": "tag", "at_once": 5}], "has a match or a prefix, one of them"),
    "match and prefix": ([{**TAG, "match": "tenant:a", "at_once": 5}], "has a match or a prefix, one of them"),
    "an empty prefix": ([{"scope": "tag", "prefix": "", "at_once": 5}], "a text of 1 to 200 characters"),
    "a number as prefix": ([{"scope": "tag", "prefix": 5, "at_once": 5}], "a text of 1 to 200 characters"),
    "keys at once": ([{"scope": "key", "at_once": 5}], "one at a time already"),
    "negative": ([{**TAG, "at_once": -1}], "at_once of a limit is a whole number from 1 to 1000000"),
    "zero": ([{**TAG, "at_once": 0}], "at_once of a limit is a whole number from 1 to 1000000"),
    "huge": ([{**TAG, "at_once": 10**12}], "at_once of a limit is a whole number from 1 to 1000000"),
    "a fraction": ([{**TAG, "at_once": 1.5}], "at_once of a limit is a whole number from 1 to 1000000"),
    "text": ([{**TAG, "at_once": "5"}], "at_once of a limit is a whole number from 1 to 1000000"),
    "no rate": ([{**TAG, "rate": 0, "per": 60}], "rate of a limit is a whole number from 1 to 1000000"),
    "no time": ([{**TAG, "rate": 1, "per": 0}], "per of a limit is a number of seconds from 0.001 to 2678400"),
    "a long time": ([{**TAG, "rate": 1, "per": 1e12}], "per of a limit is a number of seconds from 0.001 to 2678400"),
    "a text as time": ([{**TAG, "rate": 1, "per": "60"}], "per of a limit is a number of seconds from 0.001 to 2678400"),
    "a negative burst": ([{**TAG, "rate": 1, "per": 60, "burst": -1}], "burst of a limit is a whole number from 0"),
    "no bound": ([TAG], "a limit has at_once, or a rate, or both"),
    "a rate without per": ([{**TAG, "rate": 1}], "a limit has rate and per together"),
    "a per without rate": ([{**TAG, "at_once": 1, "per": 60}], "a limit has rate and per together"),
    "a burst without rate": ([{**TAG, "at_once": 1, "burst": 60}], "the burst of a limit belongs to a rate"),
    "two of the queue": ([{"scope": "queue", "at_once": 1}, {"scope": "queue", "rate": 1, "per": 1}], "two limits have the scope queue"),
    "two of a prefix": ([{**TAG, "at_once": 1}, {**TAG, "at_once": 2}], "two limits have the scope tag and the prefix 'tenant:'"),
    "overlapping prefixes": ([{**TAG, "at_once": 1}, {"scope": "tag", "prefix": "tenant:a", "at_once": 2}], "'tenant:' and 'tenant:a' of two limits overlap"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_a_limit_that_cannot_be_meant_is_refused_in_one_sentence(db: Database, wrong: str) -> None:
    limits, sentence = WRONG[wrong]
    engine = Engine(db)
    before = contents(db)
    with refused("QU001", sentence) as caught:
        change(engine, limits=limits)
    assert "\n" not in str(caught.value.diag.message_primary)
    assert not differences(before, contents(db))


@pytest.mark.parametrize(
    "fair_by", [5, {}, {"tag": ""}, {"tag": 5}, {"type": "a"}, {"tag": "a", "b": 1}]
)
def test_a_wrong_fair_by_is_refused(db: Database, fair_by: Any) -> None:
    with refused("QU001", "the fair_by of a queue is an object of tag"):
        change(Engine(db), fair_by=fair_by)


@pytest.mark.parametrize("aging", [0, -1, 1e12, "60", True])
def test_a_wrong_aging_is_refused(db: Database, aging: Any) -> None:
    with refused("QU001", "the aging of a queue is a number of seconds"):
        change(Engine(db), aging=aging)


def test_null_and_an_empty_list_are_no_limits(db: Database) -> None:
    engine = Engine(db)
    for none in (None, []):
        change(engine, limits=[{**TAG, "at_once": 1, "rate": None}])
        assert db.sql("select limits from headrace.queues") == [([{**TAG, "at_once": 1}],)]
        change(engine, limits=none)
        assert db.sql("select limits from headrace.queues") == [(None,)]
