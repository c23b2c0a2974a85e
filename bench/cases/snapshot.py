"""A drain while some other session holds an old snapshot, so that nothing that was deleted since can be removed: after half a
backlog's events were drained under it, against the same without. The floor has the snapshot, too."""

from __future__ import annotations

import psycopg

from bench import peers
from bench.cases.nodes import Workers
from bench.measure import Contender
from bench.peers import Peer

PART = 50_000  # events that are drained before the next are published
FLOORS_SHARE = 0.1  # of a turn: it becomes that slow


def contenders(held: str, free: str, backlog: int) -> list[Contender]:
    before = max(backlog // 2, 1)
    floor = [Held(held, peers.FLOOR_WORKER, before)] if peers.has_asyncpg() else []
    for one in floor:
        one.share = FLOORS_SHARE
    return [
        Held(held, peers.OURS, before),
        Drained(free, peers.OURS, before, name="no snapshot"),
        *floor,
    ]


class Drained(Workers):
    """Has drained a great many events before its first turn."""

    def __init__(self, dsn: str, peer: Peer, before: int, name: str | None = None) -> None:
        super().__init__(dsn, peer, 1, name=name)
        self._before = before

    def setup(self) -> None:
        super().setup()
        self._start()
        self._go()
        for at in range(0, self._before, PART):
            self.feed(min(PART, self._before - at))
            self.vacuum()
        self.settle()


class Held(Drained):
    """The same, while another session looks at the database as it was before."""

    def __init__(self, dsn: str, peer: Peer, before: int) -> None:
        super().__init__(dsn, peer, before)
        self._session = psycopg.connect(dsn)

    def setup(self) -> None:
        self._session.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        self._session.execute("select count(*) from floor")
        super().setup()

    def close(self) -> None:
        self._session.close()
        super().close()
