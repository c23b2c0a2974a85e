"""What a node claims together."""

import re
import time
from collections.abc import Callable
from itertools import combinations
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from headrace.model.patterns import matches, overlap
from headrace.node.claim.lane import Lane
from headrace.node.handler.handler import made
from headrace.node.handler.registry import Handlers
from tests.node.claims import claimed


def plain(event: Any) -> None: ...
def transactional(event: Any, connection: Any) -> None: ...
def batched(events: Any) -> None: ...


Registered = tuple[Callable[..., Any], str, dict[str, Any]]


def lanes(*registered: Registered) -> set[Lane]:
    found = filled(*registered).lanes()
    assert len(set(found)) == len(found)
    return set(found)


def filled(*registered: Registered) -> Handlers:
    handlers = Handlers()
    for function, patterns, options in registered:
        handlers.add(made(function, patterns.split(), **options))
    return handlers


def lane(types: str | None, **fields: Any) -> Lane:
    given = {"tags": None, "all_tags": False, "each": False, "concurrency": None, "batch": 0}
    return Lane(tuple(types.split()) if types else None, **(given | fields))


def test_without_handlers_nothing_is_claimed() -> None:
    assert lanes() == set()


def test_handlers_of_one_kind_share_a_lane() -> None:
    assert lanes((plain, "b", {}), (plain, "a c.*", {})) == {lane("a b c.*")}


def test_a_pattern_for_everything_is_no_filter() -> None:
    assert lanes((plain, "a", {}), (plain, "*", {})) == {lane(None)}


def test_transactional_handlers_have_a_lane_of_their_own() -> None:
    assert lanes((plain, "a", {}), (transactional, "b", {}), (transactional, "c", {})) == {
        lane("a"),
        lane("b c", each=True),
    }


def test_where_a_transactional_handler_may_be_met_all_are_claimed_one_by_one() -> None:
    assert lanes((plain, "order.*", {}), (plain, "user", {}), (transactional, "*.paid", {})) == {
        lane("*.paid order.*", each=True),
        lane("user"),
    }


def test_a_handler_with_a_concurrency_of_its_own_has_a_lane_of_its_own() -> None:
    assert lanes((plain, "a", {}), (plain, "b", {"concurrency": 2}), (plain, "c", {})) == {
        lane("a c"),
        lane("b", concurrency=2),
    }


def test_who_shares_a_lane_keeps_to_the_smallest_concurrency() -> None:
    assert lanes(
        (plain, "a.*", {"concurrency": 5}),
        (plain, "*.b", {"concurrency": 2}),
        (plain, "a.c", {}),
        (plain, "d", {}),
    ) == {lane("*.b a.* a.c", concurrency=2), lane("d")}


def test_batches_have_lanes_of_their_own() -> None:
    assert lanes(
        (plain, "a", {}), (batched, "b", {"batch": 100}), (batched, "c", {"batch": 100})
    ) == {lane("a"), lane("b", batch=100), lane("c", batch=100)}


def test_a_handler_between_two_others_brings_them_together() -> None:
    assert lanes(
        (plain, "a.b", {"concurrency": 1}),
        (plain, "a.c", {"concurrency": 2}),
        (plain, "a.*", {}),
    ) == {lane("a.* a.b a.c", concurrency=1)}


def test_other_tags_are_another_lane() -> None:
    assert lanes(
        (plain, "a", {}),
        (plain, "a b", {"tags": ["x", "y"]}),
        (plain, "c", {"tags": ["y", "x"]}),
        (plain, "a", {"tags": ["x", "y"], "all_tags": True}),
    ) == {
        lane("a"),
        lane("a b c", tags=("x", "y")),
        lane("a", tags=("x", "y"), all_tags=True),
    }


def test_a_transactional_handler_with_other_tags_may_be_met_too() -> None:
    assert lanes((plain, "a.*", {}), (plain, "b", {}), (transactional, "a.c", {"tags": ["x"]})) == {
        lane("a.*", each=True),
        lane("b"),
        lane("a.c", tags=("x",), each=True),
    }


PATTERNS = st.text("ab.*", min_size=1, max_size=5)
WORDS = st.text("ab.", min_size=1, max_size=6)


@given(PATTERNS, WORDS)
@example("ab*ba", "aba")
@example("a*b*b", "ab")
@example("*ab*b", "aab")
def test_an_asterisk_stands_for_any_characters(pattern: str, word: str) -> None:
    expression = "".join("(.|\n)*" if c == "*" else re.escape(c) for c in pattern)
    assert matches(pattern, word) == bool(re.fullmatch(expression, word))


@given(PATTERNS, PATTERNS, WORDS)
def test_patterns_that_match_one_type_overlap(one: str, other: str, word: str) -> None:
    if matches(one, word) and matches(other, word):
        assert overlap(one, other)
        assert overlap(other, one)


@given(PATTERNS, PATTERNS)
def test_patterns_that_overlap_match_one_type(one: str, other: str) -> None:
    if overlap(one, other):
        ends = [pattern.split("*") for pattern in (one, other)]
        first = max((parts[0] for parts in ends), key=len)
        last = max((parts[-1] for parts in ends), key=len)
        middle = "".join("".join(parts[1:-1]) for parts in ends)
        words = [one, other] if "*" not in one or "*" not in other else [first + middle + last]
        assert any(matches(one, word) and matches(other, word) for word in words)


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "tags": st.sampled_from([["x"], ["x", "y"]]),
        "concurrency": st.integers(1, 3),
    },
)
REGISTERED = st.tuples(st.sampled_from([plain, transactional]), PATTERNS, OPTIONS)


@given(st.lists(REGISTERED, min_size=1, max_size=6), st.lists(WORDS, min_size=1))
def test_lanes_claim_what_is_handled_and_nothing_twice(
    registered: list[Registered], types: list[str]
) -> None:
    handlers = filled(*registered)
    lanes = handlers.lanes()
    for type in types:
        for tags in [(), ("x",), ("y",), ("x", "y")]:
            event = claimed(type, tags=tags)
            claiming = [one for one in lanes if claims(one, type, tags)]
            found = [one for one in handlers if one.matches(type, tags)]
            assert bool(found) == bool(claiming)
            assert set(handlers.of(event)) <= set(found)
            for one in claiming:
                assert one.each or not any(handler.wants_connection for handler in found)
                for handler in found:
                    if (handler.tags, handler.all_tags) == (one.tags, one.all_tags):
                        assert (one.concurrency or 99) <= (handler.concurrency or 99)
            for one, other in combinations(claiming, 2):
                assert one.tags != other.tags


def claims(lane: Lane, type: str, tags: tuple[str, ...]) -> bool:
    return (lane.types is None or any(matches(one, type) for one in lane.types)) and (
        lane.tags is None or bool(set(lane.tags) & set(tags))
    )


def test_lanes_of_many_patterns_are_found_in_a_moment() -> None:
    patterns = [f"{n}.*.{n}" for n in range(200)] + [f"{n}.a.{n}" for n in range(200, 400)]
    handlers = filled(*((plain, pattern, {"concurrency": 1}) for pattern in patterns))
    started = time.thread_time()  # not the clock's: others may have the processor
    assert len(handlers.lanes()) == 400
    assert time.thread_time() - started < 10
