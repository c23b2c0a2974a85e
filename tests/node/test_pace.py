"""How soon a lane claims again after a claim."""

import pytest

from headrace.node.claim.pace import BUSY, FEW, GATHER, Pace

WANTED = 100


def after(*found: int, wanted: int = WANTED) -> float:
    """The pause after claims that found so many events, one right after the other; 0: nothing."""
    pace = Pace()
    for count in found:
        if count:
            pace.found(count, wanted, now=5.0)
        else:
            pace.found_nothing()
    return pace.pause(now=5.0)


def test_a_flow_of_single_events_is_gathered() -> None:
    assert after(*[1] * BUSY) == pytest.approx(GATHER)


def test_the_first_claims_after_a_quiet_time_wait_for_nothing() -> None:
    for finds in range(BUSY):
        assert after(*[1] * finds) == 0
        assert after(*[1] * (BUSY - 1), 0, *[1] * finds) == 0


def test_a_claim_that_got_all_that_it_wanted_is_followed_by_another_at_once() -> None:
    assert after(*[1] * BUSY, wanted=1) == 0


def test_many_events_need_not_be_gathered() -> None:
    assert after(*[FEW] * BUSY) == 0


def test_the_pause_begins_with_the_claim() -> None:
    pace = Pace()
    for _ in range(BUSY):
        pace.found(1, WANTED, now=5.0)
    assert pace.pause(now=5.0 + GATHER / 2) == pytest.approx(GATHER / 2)
    assert pace.pause(now=5.0 + 2 * GATHER) == 0
