"""Drains by nodes in processes of their own."""

from __future__ import annotations

import time

from bench import peers
from bench.cases import nodes
from bench.measure import Watch

LOOKS_A_SECOND = 30_000_000  # times the events: a look at a table that was long takes its time, too


class Drain(nodes.Workers):
    """Nodes that drain what somebody else has put there."""

    patience = 3600.0

    def __init__(self, dsn: str, processes: int = 1) -> None:
        super().__init__(dsn, peers.OURS, processes)

    def prepare(self, events: int) -> None:
        self.look_every = max(nodes.LOOK_EVERY, events / LOOKS_A_SECOND)
        self._start()


class DrainFrom(Drain):
    """From a moment on, before which there is nothing to claim."""

    def __init__(self, dsn: str, moment: float) -> None:
        super().__init__(dsn)
        self._moment = moment

    def run(self, events: int, watch: Watch) -> None:
        self._go()
        time.sleep(max(self._moment - time.time(), 0))
        watch.start()
        self._wait_until_empty()
        watch.stop()
