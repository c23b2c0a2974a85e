"""The process that looks after a worker: when it kills, and when it does not."""

import math
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from headrace.node import watchdog
from headrace.node.watchdog import Watchdog
from tests.requirements import requirement


class Parent:
    """A process that is looked after, and what its watchdog hears."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        self.signals, self._theirs = socket.socketpair()
        self._heard, self.words = os.pipe()
        self.watchdog = Watchdog(self.process.pid, self._theirs.fileno(), self._heard)

    def says(self, grace: float, limit: float, running: str = "") -> None:
        os.write(self.words, f"{grace} {limit} {running}\n".encode())
        assert self.watchdog._listen()

    def is_told(self, number: int) -> None:
        self.signals.send(bytes([number]))
        assert self.watchdog._listen()
        assert self.signals.recv(1) == bytes([number]), "the parent is not woken"

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.signals.close()
        self._theirs.close()
        os.close(self._heard)
        os.close(self.words)


@pytest.fixture
def parent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Parent]:
    monkeypatch.setattr(watchdog, "STEP", 0.0)
    parent = Parent()
    yield parent
    parent.close()


@requirement("G23")
def test_who_is_silent_is_left_alone_until_its_leases_have_run_out(parent: Parent) -> None:
    dog = parent.watchdog
    dog._silent = 1e6
    assert not dog._is_stuck(), "nothing is known of it yet"
    parent.says(grace=1, limit=60)
    assert dog._silent == 0
    dog._silent = 59
    assert not dog._is_stuck()
    dog._silent = 61
    assert dog._is_stuck()


def test_one_that_is_stopped_is_silent_and_not_stuck(parent: Parent) -> None:
    dog = parent.watchdog
    parent.says(grace=1, limit=60)
    parent.process.send_signal(signal.SIGSTOP)
    os.waitpid(parent.process.pid, os.WUNTRACED)
    dog._silent = 61
    assert not dog._is_stuck()
    assert dog._silent == 0


@requirement("G14", "G23")
def test_who_was_told_to_end_is_given_its_grace_and_is_not_killed_while_it_speaks(
    parent: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    dog = parent.watchdog
    parent.says(grace=100, limit=600)
    now = 1_000.0
    monkeypatch.setattr(watchdog.time, "monotonic", lambda: now)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        parent.is_told(number)
    dog._silent = 50
    now += 100.5
    assert not dog._is_stuck()
    now += 1
    assert dog._is_stuck()
    parent.says(grace=100, limit=600)
    assert not dog._is_stuck(), "a thread of it runs, and ends it"
    # A second signal ends the grace time.
    now = 1_000.5
    parent.is_told(signal.SIGINT)
    dog._silent = 5
    assert not dog._is_stuck()
    now += 1.1
    assert dog._is_stuck()


@pytest.mark.parametrize("closed", ["signals", "words"])
def test_it_ends_with_its_parent(parent: Parent, closed: str) -> None:
    if closed == "signals":
        parent.signals.shutdown(socket.SHUT_RDWR)
    else:
        os.close(parent.words)
        parent.words = os.dup(parent._heard)
    assert not parent.watchdog._listen()


def test_a_lease_that_is_very_short_is_no_reason_to_kill_one_that_is_slow(parent: Parent) -> None:
    parent.says(grace=0, limit=0.5)
    assert parent.watchdog._limit == watchdog.SHORTEST
    parent.says(grace=0, limit=math.inf, running="a b c")
    assert (parent.watchdog._limit, parent.watchdog._running) == (math.inf, "a b c")
