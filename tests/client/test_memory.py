"""What a client remembers, with a clock that a test moves."""

from datetime import UTC, datetime, timedelta

import pytest

from headrace.engine.memory import (
    ENDED,
    FILTERS,
    PRICED_BY,
    SWEEP_SHARE,
    Claims,
    Hints,
    Memory,
    Ticks,
)
from headrace.model import Claim, Claimed

pytestmark = pytest.mark.one_database("what a client of one server remembers")

NOW = datetime(2030, 1, 1, tzinfo=UTC)


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def claimed(id: int, attempt: int = 1, lease: int = 7) -> Claimed:
    return Claimed(id, attempt, lease, False, "a", (), {}, 5, 0, 0, 3, NOW, b"", None)


def test_a_sweep_is_due_without_hints_and_every_second() -> None:
    hints = Hints()
    assert hints.is_sweep_due(10)
    hints.swept(10, took=0.001, found=True)
    assert hints.is_sweep_due(10)
    hints.text = "{}"
    assert not hints.is_sweep_due(10.9)
    assert hints.is_sweep_due(11)


def sweep(hints: Hints, took: float, *, found: bool, times: int = PRICED_BY) -> None:
    """All of them at the tenth second."""
    for _ in range(times):
        hints.swept(10, took, found)


def test_a_dear_sweep_is_repeated_after_a_multiple_of_its_time() -> None:
    hints = Hints("{}")
    sweep(hints, 0.2, found=True)
    assert not hints.is_sweep_due(9.9 + SWEEP_SHARE * 0.2)
    assert hints.is_sweep_due(10 + SWEEP_SHARE * 0.2)


def test_some_slow_sweeps_are_no_price() -> None:
    hints = Hints("{}")
    sweep(hints, 0.001, found=False, times=1)
    sweep(hints, 5.0, found=False, times=PRICED_BY - 1)
    assert hints.is_sweep_due(11)
    assert hints.is_sweep_worthwhile(10)


@pytest.mark.parametrize(
    ("took", "found", "worthwhile"),
    [(0.004, False, True), (0.2, True, True), (0.2, False, False), (0.006, False, False)],
)
def test_only_dear_sweeps_that_find_nothing_are_rationed(
    took: float, found: bool, worthwhile: bool
) -> None:
    hints = Hints("{}")
    sweep(hints, took, found=found)
    assert hints.is_sweep_worthwhile(10) is worthwhile
    assert hints.is_sweep_worthwhile(10 + SWEEP_SHARE * 0.2)


def test_a_database_that_is_far_away_makes_no_sweep_dear() -> None:
    hints = Hints("{}")
    hints.polled(0.15)
    sweep(hints, 0.152, found=False)
    assert hints.is_sweep_worthwhile(10)
    assert hints.is_sweep_due(11)
    sweep(hints, 0.19, found=False)
    assert not hints.is_sweep_worthwhile(10)


def test_each_filter_has_its_hints_and_there_are_not_too_many() -> None:
    memory = Memory()
    mine = memory.hints(["a"], None, False)
    assert memory.hints(["a"], None, False) is mine
    others = [(None, ["a"], False), (["a"], None, True), (None, None, False), ([], None, False)]
    assert all(memory.hints(*other) is not mine for other in others)
    for n in range(10 * FILTERS):
        memory.hints([str(n)], None, False)
    assert len(memory._hints) <= FILTERS


def test_a_client_ticks_every_second(clock: Clock) -> None:
    ticks = Ticks(clock)
    assert [ticks.take_turn(), ticks.take_turn()] == [True, False]
    clock.now += 0.9
    assert not ticks.take_turn()
    clock.now += 0.2
    assert ticks.take_turn()


def test_a_tick_looks_ten_seconds_back_and_once_a_minute_at_everything(clock: Clock) -> None:
    ticks = Ticks(clock)
    bounds = []
    for second in range(63):
        assert ticks.take_turn()
        bounds.append(ticks.since)
        ticks.ticked(NOW + timedelta(seconds=second))
        clock.now += 1
    assert [second for second, bound in enumerate(bounds) if bound is None] == [0, 60]
    assert bounds[5] == NOW + timedelta(seconds=4 - 10)


def test_a_tick_that_failed_is_followed_by_one_that_looks_as_far_back(clock: Clock) -> None:
    ticks = Ticks(clock)
    ticks.take_turn()
    ticks.ticked(NOW)
    clock.now += 1
    ticks.take_turn()
    since = ticks.since
    clock.now += 1
    ticks.take_turn()
    assert ticks.since == since == NOW - timedelta(seconds=10)


def test_an_open_claim_is_known_by_its_event(clock: Clock) -> None:
    claims = Claims(clock)
    first, second = claimed(1), claimed(1, attempt=2, lease=8)
    claims.opened([first], 60)
    assert claims.of(1) is first
    claims.opened([second], 60)
    claims.ended([first])
    assert claims.of(1) is second
    assert claims.of(2) is None


def test_an_ended_claim_is_remembered_for_a_while(clock: Clock) -> None:
    claims = Claims(clock)
    claims.opened([claimed(1)], 60)
    claims.ended([claimed(1)])
    assert claims.of(1) == Claim(1, 1)
    claims.ended([Claim(id, 1) for id in range(10, 10 + ENDED)])
    assert claims.of(1) == Claim(1, 1)
    for id in range(10, 10 + 3 * ENDED):
        claims.ended([Claim(id, 1)])
    assert claims.of(1) is None
    assert len(claims._ended) + len(claims._ended_before) <= 2 * ENDED + 1


@pytest.mark.parametrize("lease", [60, None])
def test_a_claim_is_forgotten_long_after_its_lease_and_a_heartbeat_keeps_it(
    clock: Clock, lease: float | None
) -> None:
    claims = Claims(clock)
    claims.opened([claimed(1, lease=7)], 60)
    claims.opened([claimed(2, lease=8)], 60)
    for _ in range(4):
        clock.now += 59
        claims.extended([8], lease)
    claims.opened([], 60)
    assert claims.of(1) is None
    assert claims.of(2) is not None
    assert list(claims._leases) == [8]


def test_what_is_never_finished_does_not_fill_the_memory(clock: Clock) -> None:
    claims = Claims(clock)
    for id in range(5_000):
        claims.opened([claimed(id, lease=id)], 1)
        clock.now += 1
    assert len(claims._leases) < 50


def test_what_is_finished_is_forgotten_however_long_its_lease_is(clock: Clock) -> None:
    claims = Claims(clock)
    week = 7 * 86_400
    for lease in range(1_000):
        batch = [claimed(10 * lease + n, lease=lease) for n in range(10)]
        claims.opened(batch, week)
        claims.ended(batch)
        claims.ended(batch[:3])
    assert claims._leases == {}


def test_of_a_lease_what_is_ended_is_forgotten_and_the_rest_is_not(clock: Clock) -> None:
    claims = Claims(clock)
    batch = [claimed(id) for id in range(1, 6)]
    claims.opened(batch, 60)
    claims.ended(batch[:2])
    claims.ended(batch[:2])
    claims.ended([Claim(3, 1), Claim(4, 1, lease=7)])
    assert [claims.of(id) for id in range(1, 6)] == [
        *(Claim(id, 1) for id in range(1, 5)),
        batch[4],
    ]
    claims.ended([Claim(5, 1, lease=99)])
    assert claims.of(5) == Claim(5, 1)


def test_the_last_claim_counts_whatever_became_of_older_ones(clock: Clock) -> None:
    claims = Claims(clock)
    first, second = claimed(1), claimed(1, attempt=2, lease=8)
    claims.opened([first], 60)
    claims.opened([second], 60)
    claims.ended([second])
    assert claims.of(1) == Claim(1, 2)


def test_a_lease_is_whole_while_nothing_of_it_has_ended(clock: Clock) -> None:
    claims = Claims(clock)
    mine = [claimed(1), claimed(2), claimed(3)]
    claims.opened(mine, 60)
    assert claims.whole(mine) == 7
    for others in ([], mine[:2], mine[::-1], [*mine, claimed(4)], [*mine[:2], claimed(3)]):
        assert claims.whole(others) is None
    claims.ended(mine[2:])
    assert claims.whole(mine) is None
    assert claims.whole(mine[:2]) is None


def test_a_single_claim_is_a_whole_lease_if_that_covers_no_other(clock: Clock) -> None:
    claims = Claims(clock)
    mine = [claimed(1)]
    claims.opened(mine, 60)
    assert claims.whole(mine) == mine[0].lease


def test_what_ended_whole_is_remembered_as_ended(clock: Clock) -> None:
    claims = Claims(clock)
    claims.opened([claimed(1, 2), claimed(2)], 60)
    claims.ended_whole(7)
    claims.ended_whole(7)
    assert (claims.of(1), claims.of(2)) == (Claim(1, 2), Claim(2, 1))
    assert claims.whole([claimed(1, 2), claimed(2)]) is None
