"""A loop that is blocked is seen from another thread, and what blocks it is named."""

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

import pytest

from headrace.node.lease import loop_watch
from headrace.node.lease.loop_watch import LoopWatch, culprit
from tests.requirements import requirement


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


class Loop:
    """A loop that answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list = []

    def call_soon_threadsafe(self, callback) -> None:
        self.asked.append(callback)

    def answer(self) -> None:
        while self.asked:
            self.asked.pop()()


class TestWatch:
    @pytest.fixture
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> Clock:
        clock = Clock()
        monkeypatch.setattr(loop_watch, "time", clock)
        return clock

    @pytest.fixture
    def loop(self) -> Loop:
        return Loop()

    @pytest.fixture
    def watch(self, loop: Loop, clock: Clock) -> LoopWatch:
        return LoopWatch(loop, patience=4.0)

    def looks(self, watch: LoopWatch, clock: Clock, times: int) -> None:
        for _ in range(times):
            clock.now += watch.look()

    def test_a_loop_that_answers_is_not_spoken_of(
        self, watch: LoopWatch, loop: Loop, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
        for _ in range(20):
            clock.now += watch.look()
            loop.answer()
        assert caplog.records == []
        assert watch.lag == pytest.approx(1.0)

    def test_one_that_does_not_is_warned_of_once_each_time(
        self, watch: LoopWatch, loop: Loop, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "headrace")
        for _ in range(2):
            self.looks(watch, clock, 4)
            loop.answer()
            assert caplog.records == []
            self.looks(watch, clock, 5)
            assert watch.lag == pytest.approx(5.0)
            self.looks(watch, clock, 3)
            loop.answer()
            self.looks(watch, clock, 1)
            warning, info = caplog.records
            assert (warning.levelname, info.levelname) == ("WARNING", "INFO")
            assert "not answered for 4.0 s" in warning.getMessage()
            assert "after 8.0 s" in info.getMessage()
            caplog.clear()
            loop.answer()

    def test_a_process_that_was_stopped_has_not_blocked_its_loop(
        self, watch: LoopWatch, loop: Loop, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
        self.looks(watch, clock, 1)
        clock.now += 1_000
        self.looks(watch, clock, 2)
        loop.answer()
        self.looks(watch, clock, 3)
        assert caplog.records == []

    def test_a_loop_that_is_closed_is_left_alone(
        self, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
        loop = asyncio.new_event_loop()
        loop.close()
        self.looks(LoopWatch(loop, patience=4.0), clock, 20)
        assert caplog.records == []


class Blocked:
    """A loop in a thread whose handler waits until it is let go."""

    def __init__(self) -> None:
        self.waits = threading.Event()
        self.go_on = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self.handle()))

    async def handle(self) -> None:
        self.block()

    def block(self) -> None:
        self.waits.set()
        self.go_on.wait()

    def frame(self) -> FrameType:
        self.waits.wait()
        return sys._current_frames()[self.thread.ident]


@pytest.fixture
def blocked() -> Iterator[Blocked]:
    blocked = Blocked()
    blocked.thread.start()
    yield blocked
    blocked.go_on.set()
    blocked.thread.join()


@requirement("G4")
def test_the_function_that_blocks_is_named_and_where_it_is(blocked: Blocked) -> None:
    time.sleep(0)
    said = culprit(blocked.frame())
    assert said.startswith(f"Blocked.handle ({__file__}:")
    assert ", in " in said
    assert "asyncio" not in said


def test_nothing_is_known_of_a_thread_that_is_gone() -> None:
    assert culprit(None) == "something"
