"""Work in steps: what is said when it does not come to its end."""

import signal
from collections.abc import Callable

import psycopg
import pytest

from headrace.cli.terminal.errors import DatabaseLost, Interrupted
from headrace.cli.terminal.progress import in_steps
from headrace.errors import InvalidInput

Progress = Callable[[int], object]


def test_ctrl_c_waits_for_the_end_of_a_step() -> None:
    steps = []

    def run(progress: Progress) -> int:
        for done in (10, 20, 30):
            if done == 20:
                signal.raise_signal(signal.SIGINT)
            steps.append(done)
            progress(done)
        return 30

    with pytest.raises(Interrupted, match="Interrupted: 20 events moved; the rest is unchanged"):
        in_steps("Moving", None, run, "moved")
    assert steps == [10, 20]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_in_the_last_step_tells_all_that_was_done() -> None:
    def run(progress: Progress) -> int:
        progress(10)
        signal.raise_signal(signal.SIGTERM)
        return 20

    with pytest.raises(Interrupted, match="Interrupted: 20 events moved"):
        in_steps("Moving", None, run, "moved")


def test_a_second_one_does_not_wait_and_promises_less() -> None:
    def run(progress: Progress) -> int:
        progress(10)
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("it goes on")

    with pytest.raises(Interrupted, match="Interrupted: at least 10 events moved"):
        in_steps("Moving", None, run, "moved")


def test_an_error_tells_what_was_done_before() -> None:
    def run(progress: Progress) -> int:
        progress(10)
        raise psycopg.OperationalError("the connection is closed")

    with pytest.raises(DatabaseLost, match=r"the connection is closed\. At least 10 events moved"):
        in_steps("Moving", None, run, "moved")


def test_an_error_before_anything_was_done_is_that_error() -> None:
    def run(progress: Progress) -> int:
        raise InvalidInput("no such thing")

    with pytest.raises(InvalidInput):
        in_steps("Moving", None, run, "moved")
